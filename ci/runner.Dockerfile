# A runner with an NPU. BASE brings CANN, torch and torch_npu; constraints keep pip from touching them.
#   docker build -f ci/runner.Dockerfile --build-arg BASE=IMAGE-WITH-TORCH-NPU -t pytest-ascend-runner .
ARG BASE
FROM ${BASE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
COPY . /src
RUN python3 -m pip list --format=freeze | grep -iE '^torch([-_]npu)?==' > /tmp/keep.txt \
    && python3 -m pip install --no-cache-dir -c /tmp/keep.txt /src
WORKDIR /suite
ENTRYPOINT ["python3", "-m", "pytest", "--ascend"]
