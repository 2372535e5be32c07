"""The operands of every_op's calls: four shapes, and random tensors of them that calls.py asks for.

  16       16 elements: what a call costs without its arithmetic
  rows     256 rows of 1024 elements, or four images of 64 channels: they fit into a cache
  4M       four million elements: they do not
  strided  one million elements, but not in row-major order: images are channels-last, matrices are transposed views
           with gaps between their lines
"""
import math

import torch

SHAPES = ("16", "rows", "4M", "strided")
OWN = "sample"  # the shape of operands that are PyTorch's own sample


class Operands:
    """Makes the operands of a call in one shape and dtype; the same in every run."""

    # Rows and columns; [n, c, length]; [n, c, h, w]; [n, c, d, h, w]; the side of a square matrix; the columns of a
    # second factor.
    SIZES = {"16": ((4, 4), (1, 2, 8), (1, 1, 4, 4), (1, 1, 2, 2, 4), 4, 4),
             "rows": ((256, 1024), (16, 16, 1024), (4, 64, 32, 32), (1, 16, 16, 32, 32), 64, 256),
             "4M": ((4096, 1024), (64, 64, 1024), (16, 64, 64, 64), (4, 16, 16, 64, 64), 256, 256),
             "strided": ((1024, 1024), (16, 64, 1024), (16, 64, 32, 32), (4, 16, 16, 32, 32), 128, 256)}

    def __init__(self, shape, dtype, requires_grad, domain=(None, None)):
        self.shape, self.dtype, self.requires_grad = shape, dtype, requires_grad
        self.matrix, self.line, self.image, self.volume, self.side, self.columns = self.SIZES[shape]
        self.rows, self.row = self.matrix
        self.low, self.high = self.bounds(domain)
        self.generator = torch.Generator().manual_seed(1)

    @staticmethod
    def bounds(domain):
        """The interval of the elements: that of the operation where it has one, without its ends; else [-2, 2]."""
        low, high = domain
        if low is not None and high is not None:
            return low + (high - low) * 0.05, high - (high - low) * 0.05
        if low is not None:
            return low + 0.05, low + 2
        return (high - 2, high - 0.05) if high is not None else (-2, 2)

    @property
    def small(self):
        return self.shape == "16"

    @property
    def count(self):
        return self.rows * self.row

    def plain(self, *size, low=None, high=None):
        """Elements in row-major order, without a gradient."""
        size = size or self.matrix
        if not self.dtype.is_floating_point:
            return torch.randint(1, 100, size, generator=self.generator, dtype=self.dtype)
        low, high = (self.low, self.high) if low is None else (low, high)
        drawn = torch.rand(size, generator=self.generator) * (high - low) + low
        return drawn.to(self.dtype)

    def laid_out(self, t):
        """The same elements in the layout of this shape."""
        if self.shape != "strided" or t.dim() == 0:
            return t
        if t.dim() == 4:
            return t.contiguous(memory_format=torch.channels_last)
        if t.dim() == 5:
            return t.contiguous(memory_format=torch.channels_last_3d)
        if t.dim() == 1:
            out = t.new_empty(2 * t.numel())[::2]
        else:
            out = t.new_empty(*t.shape[:-2], t.shape[-1], t.shape[-2] + 7)[..., :t.shape[-2]].transpose(-1, -2)
        return out.copy_(t)

    def leaf(self, t):
        """The tensor as an operand that collects a gradient, if the operation has one."""
        return self.laid_out(t).detach().requires_grad_(self.requires_grad)

    def x(self, *size, low=None, high=None):
        """An operand: of rows and columns unless a size is given."""
        return self.leaf(self.plain(*size, low=low, high=high))

    def weight(self, *size):
        """A factor that keeps the size of the elements."""
        bound = 1 / math.sqrt(max(1, math.prod(size[1:])))
        return self.leaf(self.plain(*size, low=-bound, high=bound))

    def vector(self, n):
        """A parameter of one axis. It is contiguous in every shape."""
        return self.plain(n, low=0.5, high=1.5).requires_grad_(self.requires_grad)

    def integers(self, end, *size):
        return torch.randint(end, size, generator=self.generator)

    def permutation(self, n):
        return torch.randperm(n, generator=self.generator)

    def shuffled_columns(self):
        """For each element of the matrix a column; a row names none twice."""
        return (torch.arange(self.row) + self.integers(self.row, self.rows, 1)) % self.row

    def mask(self, *size):
        return torch.rand(size or self.matrix, generator=self.generator) < 0.5

    def signs(self, *size):
        return (self.mask(*size) * 2.0 - 1).to(self.dtype)

    def square(self, *leading):
        """Square matrices that are positive definite and well-conditioned."""
        n = self.side
        half = self.plain(*leading, n, n, low=-1, high=1).double() / math.sqrt(n)
        return self.leaf((half @ half.mT + torch.eye(n)).to(self.dtype))
