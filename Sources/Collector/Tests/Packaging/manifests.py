"""Checks Kubernetes manifests by Kubernetes' own schemas (kubernetes-validate), and what no schema says: names that have to agree.

  manifests.py KUBERNETES CONTAINERS       directories
  manifests.py --command DOCKERFILE        prints what the container starts
"""
import json
import pathlib
import re
import sys

import yaml


def command(path):
    """ENTRYPOINT and CMD of a container file."""
    text = pathlib.Path(path).read_text()
    return [word for name in ("ENTRYPOINT", "CMD") for word in json.loads(re.search(rf"^{name} (\[.*\])$", text, re.M)[1])]


def pods(documents):
    for document in documents:
        template = document.get("spec", {}).get("template")
        if template:
            yield document, template["metadata"]["labels"], template["spec"]


def check(documents):
    claims = {document["metadata"]["name"] for document in documents if document["kind"] == "PersistentVolumeClaim"}
    labels, ports = [], set()
    for document, found, pod in pods(documents):
        name = document["metadata"]["name"]
        labels.append(found)
        assert document["spec"]["selector"]["matchLabels"].items() <= found.items(), f"{name} does not select its own pods"
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for container in pod["containers"] + pod.get("initContainers", []):
            mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounts <= volumes.keys(), f"{name}: no volume for {mounts - volumes.keys()}"
            named = {port["name"] for port in container.get("ports", [])}
            ports |= named
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert probe not in container or container[probe]["httpGet"]["port"] in named, f"{name}: {probe} asks a port without a name"
            # What an image with a newer version does before it listens may take longer than a liveness probe waits.
            assert "livenessProbe" not in container or "startupProbe" in container, f"{name}: no startupProbe"
            places = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            for word in container.get("args", []):
                # Every file that it is given lies in a volume: the rest of the root cannot be written to.
                assert not word.startswith("/") or any((word + "/").startswith(place + "/") for place in places), f"{name}: {word} is in no volume"
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in claims, f"{name}: no claim {claim}"
    for service in (document for document in documents if document["kind"] == "Service"):
        assert any(service["spec"]["selector"].items() <= found.items() for found in labels), "the service selects no pod"
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, "the service's port is no container's"


def main(kubernetes, containers):
    import kubernetes_validate

    for path in sorted(pathlib.Path(kubernetes).glob("*.yaml")):
        documents = list(yaml.safe_load_all(path.read_text()))
        for document in documents:
            kubernetes_validate.validate(document, "1.31", strict=True)
        check(documents)
        print(f"{path}: {', '.join(document['kind'] for document in documents)}")
    for path in sorted(pathlib.Path(containers).glob("*.Dockerfile")):
        assert command(path)[0].startswith("/usr/bin/stall-"), path
        print(f"{path}: {' '.join(command(path))}")


if sys.argv[1] == "--command":
    print(" ".join(command(sys.argv[2])))
else:
    main(*sys.argv[1:])
