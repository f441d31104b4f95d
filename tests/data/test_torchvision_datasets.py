from fedsim.data.torchvision_datasets import torchvision_datasets


def test_the_data_sets_are_found() -> None:
    assert torchvision_datasets().MNIST.__name__ == "MNIST"
