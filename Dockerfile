# fedsim in a container, without a GPU. Results are kept in the folder that is mounted at /results:
#
#   docker build --tag fedsim .
#   docker run --rm --init --volume "$PWD:/results" --user "$(id -u):$(id -g)" fedsim run quickstart
#
# Docker has not built this file yet. tests/test_dockerfile.py checks its paths. pip prefers 2.13.0+cpu for the pin torch==2.13.0,
# and fedsim runs as a user that the system does not know: both were tried outside Docker.
FROM python:3.11-slim

# PyPI's torch for Linux installs CUDA, too. This index has the build without it. An empty value gives PyPI's.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_CONSTRAINT=/sources/constraints.txt
ARG PIP_NO_CACHE_DIR=1

# torch is in a layer of its own, which changes of the sources leave as it is.
WORKDIR /sources
COPY constraints.txt ./
RUN pip install torch torchvision
COPY pyproject.toml README.md LICENSE ./
COPY fedsim fedsim
COPY scenarios scenarios
RUN pip install '.[figures]'

RUN useradd --create-home fedsim && install --directory --owner=fedsim --group=fedsim /results
USER fedsim
# matplotlib keeps its list of fonts here; the home of --user is not writable.
ENV MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /results
VOLUME /results
ENTRYPOINT ["fedsim"]
CMD ["--help"]
