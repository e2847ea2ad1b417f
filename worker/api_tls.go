package worker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// secured is a listener that speaks TLS with the key pair in two files, or the listener as it is without any. The files are read anew
// for each connection, so that who renews a certificate need not restart a worker; one that can not be read fails that
// connection alone.
func secured(listener net.Listener, certFile, keyFile string) (net.Listener, error) {
	switch {
	case certFile == "" && keyFile == "":
		return listener, nil
	case certFile == "" || keyFile == "":
		return nil, errors.New("a certificate and its key belong together: give both --http-cert and --http-key")
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("--http-cert %s and --http-key %s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() }}), nil
}
