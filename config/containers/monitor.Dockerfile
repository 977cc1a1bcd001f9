# The command, for 'ship' beside a server (sidecar) or on each node (DaemonSet). Build it in a directory with the packages of scripts/package:
#
#   scripts/package packages
#   docker build -f config/containers/monitor.Dockerfile -t stall-monitor:0.1.0 packages
#   docker run --user 0 --pid host -v /var/lib/stalls:/var/lib/stalls:ro -v ship:/var/lib/stall-monitor-ship -v ./token:/etc/stall-monitor/token:ro \
#       stall-monitor:0.1.0 ship /var/lib/stalls --collector https://stalls.example.com:4319 --token-file /etc/stall-monitor/token
#
# As root, because reports have mode 0600 and belong to the servers' users; with the host's processes, because whether a server still runs
# is seen in /proc. Beside a single server, '--user' can be that server's user.
FROM debian:bookworm-slim
COPY stall-monitor_*.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/stall-monitor_*.deb ca-certificates \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/* \
    && install -d -o 4319 -g 4319 -m 700 /var/lib/stall-monitor-ship
USER 4319:4319
# The checkpoint is kept there.
ENV STATE_DIRECTORY=/var/lib/stall-monitor-ship
VOLUME /var/lib/stall-monitor-ship
ENTRYPOINT ["/usr/bin/stall-monitor"]
CMD ["--help"]
