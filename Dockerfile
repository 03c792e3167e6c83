# inbedder serve on a CPU, with the bundled model: no network is needed at run time.
#   docker build -t inbedder . && docker run -p 8765:8765 -e INBEDDER_API_KEY=choose-one inbedder
FROM python:3.11-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
# Such as --build-arg PIP_OPTIONS='--extra-index-url INDEX' for an index with builds of torch for CPUs alone.
ARG PIP_OPTIONS=""
WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY inbedder ./inbedder
COPY prompts ./prompts
RUN pip install --no-cache-dir -c constraints.txt ${PIP_OPTIONS} '.[mini,serve]' && \
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
