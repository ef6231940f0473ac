# The emulated device on any x86-64 or aarch64 machine:
#   docker build -f ci/laptop.Dockerfile -t pytest-ascend .
#   docker run --rm -v "$PWD/ascend-report:/suite/ascend-report" pytest-ascend
FROM python:3.11-slim
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[emulated]"
WORKDIR /suite
ENTRYPOINT ["pytest", "--ascend"]
