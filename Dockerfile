# A server that runs as nobody in particular (user 65532), with the programs that
# bake, look into and ask tables beside it:
#
#   docker build -t zero-kv .
#   docker run --read-only --network none -v "$PWD/tables:/data:ro" -v zero-kv:/run/zero-kv zero-kv
#
# Its socket is in the volume zero-kv, for containers that mount it and run as user or
# group 65532; see "As a service" in docs/OPERATIONS.md.
FROM rust:1-bookworm AS build
WORKDIR /zero-kv
COPY . .
RUN cargo build --release --locked && mkdir -p /root-of-image/run/zero-kv /root-of-image/data \
    && install -D -s -t /root-of-image/usr/bin target/release/kv_store target/release/baker target/release/zkv

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /root-of-image/usr/bin /usr/bin
COPY --from=build /root-of-image/data /data
COPY --from=build --chown=65532:65532 /root-of-image/run/zero-kv /run/zero-kv
USER 65532:65532
VOLUME /run/zero-kv
HEALTHCHECK CMD ["/usr/bin/zkv", "health", "--socket", "/run/zero-kv/zero-kv.sock"]
ENTRYPOINT ["/usr/bin/kv_store", "--db", "/data/storage.db", "--socket", "/run/zero-kv/zero-kv.sock"]
