# syntax=docker/dockerfile:1
# Image of kv_store, baker, and zkv, which runs as user 65532:
#
#   docker build -t zero-kv .
#   docker run --read-only --network none -v "$PWD/tables:/data:ro" -v zero-kv:/run/zero-kv zero-kv
#
# A server that follows a published table needs a network and the folder /cache: see packaging/compose/compose.yaml and
# packaging/kubernetes/daemonset.yaml.
#
# The socket is in the volume zero-kv. Other containers mount this volume and run as user or
# group 65532: see "As a service" in docs/operations/service.md.
FROM rust:1-bookworm AS build
# BuildKit sets it to the processor of the image.
ARG TARGETARCH
WORKDIR /zero-kv
COPY . .
# BuildKit keeps the crates and the compiled dependencies in caches, so that a build after a change compiles only this
# package. Images for several processors are built at the same time, each with a cache of its own.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/zero-kv/target,id=zero-kv-target-$TARGETARCH \
    cargo build --profile dist --locked --features full --bin kv_store --bin baker --bin zkv \
    && mkdir -p /root-of-image/run/zero-kv /root-of-image/data /root-of-image/cache \
    && install -D -s -t /root-of-image/usr/bin target/dist/kv_store target/dist/baker target/dist/zkv

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /root-of-image/usr/bin /usr/bin
COPY --from=build /root-of-image/data /data
COPY --from=build --chown=65532:65532 /root-of-image/run/zero-kv /run/zero-kv
COPY --from=build --chown=65532:65532 /root-of-image/cache /cache
USER 65532:65532
VOLUME /run/zero-kv
# A restart does not help while the store of a published table is unreachable, so that counts only after a week.
HEALTHCHECK CMD ["/usr/bin/zkv", "health", "--stale-after", "604800", "--socket", "/run/zero-kv/zero-kv.sock"]
ENTRYPOINT ["/usr/bin/kv_store", "--db", "/data/storage.db", "--socket", "/run/zero-kv/zero-kv.sock"]
