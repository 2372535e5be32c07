"""Models and machines that tables are made for."""
from .steps import Model


def gpt(layers, width, vocabulary, length, weight_bytes):
    """Blocks of 12 width^2 weights, with biases and norms, and a table of tokens that is the last layer, too."""
    block = 12 * width * width + 13 * width
    return Model(parameters=layers * block + (vocabulary + length) * width + 2 * width, tensors=12 * layers + 4,
                 layers=layers, width=width, length=length, weight_bytes=weight_bytes)


def model(name, weight_bytes):
    return {"gpt-124m": lambda: gpt(12, 768, 50257, 1024, weight_bytes),
            "gpt-7b": lambda: gpt(32, 4096, 50257, 2048, weight_bytes)}[name]()


MODELS = ("gpt-124m", "gpt-7b")
