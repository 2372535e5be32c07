# The modules of the library: what each consists of, and what it may include (cmake/FirnModules.cmake). A module
# includes core and the modules that it LINKS; core includes no module. tests/repo compares every #include and
# the table of its layers with this file.

# One process trains: tensors, kernels, gradients, layers, optimizers. Of src/dist it has what loaders, metrics
# and saved runs take, the handle of a group, whose transports are the module dist.
firn_module(core
  PACKAGES Eigen3 fmt oneDNN
  SOURCES include/firn kernels src/base src/runtime src/tensor src/autograd src/ops src/nn src/optim
    include/firn/dist/group.h src/dist/group.cpp src/dist/transport.h src/dist/transport.cpp
    src/dist/combine.h src/dist/combine.cpp src/dist/nccl_version.h)

# Factors, solves and spectra of matrices.
firn_module(linalg
  LINKS core
  SOURCES include/firn/ops/linalg.h src/linalg kernels/linalg.h kernels/cpu/linalg)

# Files of tensors, saved runs, JSON, DLPack.
firn_module(io
  LINKS core
  PACKAGES ZLIB LIBDEFLATE
  SOURCES include/firn/io src/io)

# Data sets, their file formats, and loaders.
firn_module(data
  LINKS core io
  PACKAGES ZLIB PNG JPEG
  SOURCES include/firn/data src/data)

# Export to ONNX.
firn_module(onnx
  LINKS core io
  SOURCES include/firn/onnx include/firn/io/onnx.h src/onnx)

# Training loops, run logs, metrics, profiles, and facts about the build and the machine.
firn_module(train
  LINKS core io data
  SOURCES include/firn/train src/train include/firn/metrics src/metrics include/firn/profile.h src/profile
    include/firn/environment.h src/environment)

# Language models, their files and tokenizers, and the kernels of quantised weights.
firn_module(lm
  LINKS core io
  PACKAGES PCRE2 UTF8PROC
  SOURCES include/firn/lm src/lm kernels/lm.h kernels/cpu/lm)

# Ranks: threads of a process as a group, data-parallel training, layers and pipelines that ranks share.
firn_module(dist
  LINKS core
  SOURCES include/firn/dist src/dist)

# Ranks as processes, and with a CUDA device each: libraries of their own, if FIRN_MPI and FIRN_NCCL say so.
firn_module(mpi APART LINKS core SOURCES include/firn/dist/mpi.h src/dist/mpi)
firn_module(nccl APART LINKS core SOURCES include/firn/dist/nccl.h src/dist/nccl)
