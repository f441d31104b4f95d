"""Programs that show runs, such as TensorBoard: one file for each."""
