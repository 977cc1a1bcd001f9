# The collector. Build it in a directory with the packages of scripts/package:
#
#   scripts/package packages
#   docker build -f config/containers/collector.Dockerfile -t stall-collector:0.1.0 packages
#   chown 4319 tokens && chmod 400 tokens
#   docker run -v stalls:/var/lib/stall-collector -v ./tokens:/etc/stall-collector/tokens:ro -p 4319:4319 stall-collector:0.1.0
FROM debian:bookworm-slim
COPY stall-collector_*.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/stall-collector_*.deb \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/* \
    && install -d -o 4319 -g 4319 -m 700 /var/lib/stall-collector
USER 4319:4319
ENV STATE_DIRECTORY=/var/lib/stall-collector
VOLUME /var/lib/stall-collector
EXPOSE 4319
ENTRYPOINT ["/usr/bin/stall-collector"]
CMD ["serve", "--listen", "0.0.0.0:4319", "--tokens", "/etc/stall-collector/tokens"]
