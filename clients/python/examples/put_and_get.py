"""Lends memory, puts an object and reads it, at a cluster that may fail over meanwhile.

    go run ./cmd/lab cluster                        # in another terminal; prints the line export UNDERSTUDY_...
    PYTHONPATH=clients/python/src python3 clients/python/examples/put_and_get.py "$UNDERSTUDY_ADDRESS" --cluster-id lab

Clients copy the bytes among themselves, which this example leaves out.
"""

import argparse

import understudy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("addresses", help="host:port of nodes, separated by ','")
    parser.add_argument("--cluster-id", default="mooncake_cluster")
    parser.add_argument("--tls-ca", help="file with the authorities of the nodes' certificates")
    parser.add_argument("--tls-cert", help="file with the certificate of this client")
    parser.add_argument("--tls-key", help="file with its key")
    parser.add_argument("--token", help="in place of a certificate")
    parser.add_argument("--client-id", help="UUID of this client, where its certificate or token is bound to one")
    args = parser.parse_args()
    with understudy.Client(
        args.addresses.split(","),
        cluster_id=args.cluster_id,
        client_id=args.client_id,
        tls_ca=args.tls_ca,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        token=args.token,
    ) as client:
        memory = understudy.Segment(name="python-example", base=0x10000000, size=64 << 20, endpoint="127.0.0.1:12345")
        client.mount_segment(memory)
        try:
            try:
                put = client.put_start("python-example/1", 1 << 20)
                print("write the bytes to", put.replicas[0].endpoint, hex(put.replicas[0].address))
                client.put_end(put)
            except understudy.errors.ObjectExists:
                print("it is there already")
            found = client.get("python-example/1")
            print(f"object {found.id}, {found.size} bytes, leased for {found.lease.remaining():.1f} s more")
            print("served by", client.leader())
            client.remove("python-example/1", force=True)
        finally:
            client.unmount_segment(memory.id)


if __name__ == "__main__":
    main()
