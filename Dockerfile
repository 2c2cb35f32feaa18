# One image for the operator and every role: two programs, their libraries, certificate authorities. No shell.
#
#   docker build -t registry.example/powercontext:0.1.0 .

FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends binutils ca-certificates gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /source
# Cargo reads the manifests of the whole workspace, also those of the tests.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY .ci .ci
COPY crds crds
COPY e2e e2e
COPY migrations migrations
COPY operator operator
COPY runtime runtime
COPY tests tests
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --locked --release --package powercontext --package powercontext-operator \
      --features powercontext-operator/jemalloc \
    && .ci/rootfs --at-most 60000000 /image /target/release/powercontext /target/release/powercontext-operator

FROM scratch
COPY --from=build /image /
COPY --from=build --chown=65532:65532 /image/var/lib/powercontext /var/lib/powercontext
# As a number, so that a node can see that it is not root.
USER 65532:65532
ENV POWERCONTEXT_HOME=/var/lib/powercontext
ENTRYPOINT ["/usr/local/bin/powercontext"]
