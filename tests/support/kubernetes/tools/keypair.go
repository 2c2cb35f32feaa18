// Command keypair writes a new private key to the file it is given and the public key beside it, with `.pub` appended.
// The API server signs tokens of service accounts with it; a machine need not have openssl for that.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

func write(path, kind string, der []byte, err error) error {
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: keypair FILE")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err := write(os.Args[1], "EC PRIVATE KEY", private, err); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	return write(os.Args[1]+".pub", "PUBLIC KEY", public, err)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "keypair:", err)
		os.Exit(1)
	}
}
