# The image contains the program and the CA certificates, and nothing else: no shell, no user database.
# The program does not run as root and needs no writable root (--read-only). /data is for the SQLite
# file of the embedded setup.
#
#   docker build -t tideline --build-arg VERSION=0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) .
#   docker run --read-only --cap-drop=ALL -p 127.0.0.1:8080:8080 -v tideline:/data tideline

FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
      -ldflags "-s -w -X tideline/server.version=$VERSION -X tideline/server.commit=$COMMIT" -o /out/tideline . \
    && mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/tideline /tideline
USER 65532:65532
# Only this container can reach the address for operators. Set it to :8090 if Prometheus is on the same network.
ENV TIDELINE_ADDR=:8080 TIDELINE_ADMIN_ADDR=127.0.0.1:8090 TIDELINE_DATA_DIR=/data TIDELINE_LOG_FORMAT=json
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=6s --start-period=1m CMD ["/tideline", "healthcheck"]
ENTRYPOINT ["/tideline"]
