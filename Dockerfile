# inbedder serve with the bundled model: no network is needed at run time.
#   docker build -t inbedder . && docker run -p 8765:8765 -e INBEDDER_API_KEY=choose-one inbedder
# The same on an NVIDIA GPU, with the host's driver and NVIDIA's container toolkit:
#   docker build --target gpu -t inbedder:gpu . && docker run --gpus all -p 8765:8765 -e INBEDDER_API_KEY=choose-one inbedder:gpu
FROM python:3.11-slim AS server

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
# Such as --build-arg PIP_OPTIONS='--extra-index-url INDEX' for an index with builds of torch for CPUs alone.
ARG PIP_OPTIONS=""
# Such as --build-arg EXTRAS=mini,otel to send traces, or mini,serve,quantization to load large models in 4 bits on a GPU.
ARG EXTRAS="mini,serve"
WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY inbedder ./inbedder
COPY prompts ./prompts
RUN pip install --no-cache-dir -c constraints.txt ${PIP_OPTIONS} ".[${EXTRAS}]" && \
    useradd --create-home --uid 10001 inbedder && \
    mkdir /cache && chown inbedder /cache

USER 10001
ENV INBEDDER_HOST=0.0.0.0 INBEDDER_PORT=8765
EXPOSE 8765
VOLUME /cache
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["inbedder", "serve"]

# torch's wheels for Linux on x86-64 bring the CUDA libraries, so only the driver comes from outside. Without a GPU the server does
# not start, instead of falling back to the CPU.
FROM server AS gpu
RUN ["python", "-c", "import torch; assert torch.version.cuda, f'{torch.__version__} is a build for CPUs: leave PIP_OPTIONS out'"]
ENV INBEDDER_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

# What is built without --target.
FROM server AS cpu
