"""How clients' images are transformed at random in each training."""
