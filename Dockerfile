# Build: everything the gateway needs is in the tree; the bundled plugins are committed, so no Wasm target is needed here.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin onceward

# Run: the system's roots are for TLS to upstreams and Redis; the process is not root and writes below /var/lib/onceward only.
FROM debian:bookworm-slim
RUN apt-get update -q && apt-get install -yq --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
RUN useradd --system --home-dir /var/lib/onceward --create-home onceward
COPY --from=build /src/target/release/onceward /usr/local/bin/onceward
COPY config/quickstart.toml /etc/onceward/onceward.toml
USER onceward
WORKDIR /var/lib/onceward
# Inside a container loopback is the container's own: listen on all of its addresses. Health stays on loopback.
ENV ONCEWARD_CONFIG=/etc/onceward/onceward.toml \
    ONCEWARD_SERVER__LISTEN='["0.0.0.0:8080"]'
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s CMD ["onceward", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["onceward"]
CMD ["serve"]
