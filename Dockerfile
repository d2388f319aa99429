# syntax=docker/dockerfile:1
# The image of the webhook: `make image`. `make release` demands a base that is pinned by its digest.
# Everything else that builds the image, or is in it, is from a lock, by hash, or from this folder.
ARG PYTHON_IMAGE=base

FROM docker.io/library/python:3.11-slim-bookworm AS base

FROM ${PYTHON_IMAGE} AS build
ENV UV_NO_CACHE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never SOURCE_DATE_EPOCH=315532800
WORKDIR /src
# Build tools; none of them gets further than this stage.
COPY requirements-build.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: \
      --requirement requirements-build.lock
RUN uv venv --no-project --python /usr/local/bin/python /opt/stowplan
# The lock is a constraint, as it also has what only tests need: what is not in it is refused, and so
# is what is not built yet.
COPY pyproject.toml requirements.lock ./
RUN uv pip install --python /opt/stowplan/bin/python \
      --require-hashes --only-binary :all: --constraint requirements.lock --requirement pyproject.toml
COPY README.md LICENSE ./
COPY docs/placementpolicy.schema.json docs/
COPY policies policies
COPY engine engine
COPY webhook webhook
# Bytecode is made here, the same whatever the time, as the image is read-only where it runs; not of
# the thousands of Kubernetes models and of plotly's modules, which nothing imports. Tests of libraries stay behind, and what
# uv notes for itself.
RUN hatchling build --target wheel --directory dist \
 && uv pip install --python /opt/stowplan/bin/python --no-deps dist/*.whl \
 && rm -f /opt/stowplan/.lock /opt/stowplan/lib/python3*/site-packages/stowplan-*/uv_cache.json \
 && sed -i /uv_cache.json/d /opt/stowplan/lib/python3*/site-packages/stowplan-*/RECORD \
 && find /opt/stowplan/lib -type d -name tests -prune -exec rm -r {} + \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -x 'kubernetes/(aio/)?client/(api|models)/|/plotly/' /opt/stowplan/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="stowplan" \
      org.opencontainers.image.description="Placement policies and ElasticQuota with a single admission webhook" \
      org.opencontainers.image.source="https://github.com/stowplan/stowplan" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes --quiet --root-user-action ignore setuptools wheel pip \
 && rm -rf /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* /usr/local/bin/idle* /root/.cache
COPY --from=build /opt/stowplan /opt/stowplan
# The user has no name, and so no home that Python could find; the Kubernetes client asks for one.
ENV HOME=/ PATH=/opt/stowplan/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9443 9444 9445
ENTRYPOINT ["stowplan"]
CMD ["serve"]
