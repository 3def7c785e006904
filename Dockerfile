# Headcount in a container; docs/how-to/run-in-a-container.md says how to run it.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
COPY . /source
RUN python3 -m venv /opt/headcount && /opt/headcount/bin/pip install --no-cache-dir '/source[web,tokenizer]'
# The kernels of vLLM's and SGLang's fleets, which a first answer would wait for. They run on every processor.
ENV PATH=/opt/headcount/bin:$PATH HEADCOUNT_CACHE_DIR=/opt/headcount/cache
RUN headcount demo \
 && headcount capacity --model llama-3.1-8b --gpu h100-sxm --gpus 1,2 --precision 20% \
 && headcount simulate --model llama-3.1-8b --gpu h100-sxm --workload chat --users 20 --engine sglang \
 && headcount simulate --model gpt-oss-20b --gpu h100-sxm --workload chat --users 20 \
 && python3 -c "from headcount.endpoint.serving import *; endpoint('llama-3.1-8b', 'h100-sxm', Served(), EngineInput())" \
 && headcount cache clear \
 && chmod -R a+rX /opt/headcount/cache

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/headcount /opt/headcount
# Whoever runs it, also another user than this one, has a private folder in /cache, whatever is mounted there.
RUN mkdir -m 1777 /cache
ENV PATH=/opt/headcount/bin:$PATH HEADCOUNT_CACHE_DIR=/cache/headcount PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
VOLUME ["/cache", "/tmp"]
EXPOSE 8000 8600
# The endpoint (8000) or the page (8600) takes connections; of a single command it says nothing.
HEALTHCHECK --start-period=60s CMD ["python3", "-c", "import socket\nfor port in (8000, 8600):\n    if not socket.socket().connect_ex(('127.0.0.1', port)): raise SystemExit(0)\nraise SystemExit(1)"]
# A kernel is loaded only if it is its user's own, so each user gets a copy.
ENTRYPOINT ["sh", "-c", "{ mkdir -pm 700 \"$HEADCOUNT_CACHE_DIR\" && cp -ru /opt/headcount/cache/kernels \"$HEADCOUNT_CACHE_DIR\"; } 2>/dev/null; exec headcount \"$@\"", "headcount"]
CMD ["--help"]
