package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keyPair writes a certificate for 127.0.0.1 and its key, and returns who trusts it.
func keyPair(t *testing.T, certFile, keyFile string) *http.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	trusted.AddCert(parsed)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
}

// With a key pair the API speaks TLS only, and a pair that is renewed is taken without a restart.
func TestTheAPISpeaksTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	client := keyPair(t, cert, key)
	address := ""
	stop, err := serveAPI(Config{HTTPListen: "127.0.0.1:0", Token: "secret", HTTPCert: cert, HTTPKey: key, Logger: slog.New(slog.DiscardHandler), Listening: func(_, at string) { address = at }})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	status := func(client *http.Client, url string) int {
		answer, err := client.Get(url + address + "/openapi.yaml")
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if got := status(client, "https://"); got != http.StatusOK {
		t.Errorf("over TLS it answers %d", got)
	}
	if got := status(http.DefaultClient, "http://"); got == http.StatusOK {
		t.Error("it answers without TLS")
	}
	renewed := keyPair(t, cert, key)
	if got, before := status(renewed, "https://"), status(client, "https://"); got != http.StatusOK || before == http.StatusOK {
		t.Errorf("with a renewed certificate it answers %d to who trusts that, %d to who trusts the former", got, before)
	}
}

func TestTheAPIRefusesHalfAKeyPair(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, cfg := range []Config{{HTTPCert: missing}, {HTTPKey: missing}, {HTTPCert: missing, HTTPKey: missing}} {
		cfg.HTTPListen, cfg.Token, cfg.Logger = "127.0.0.1:0", "secret", slog.New(slog.DiscardHandler)
		if _, err := serveAPI(cfg); err == nil || !strings.Contains(err.Error(), "--http-cert") {
			t.Errorf("with the certificate %q and the key %q: %v", cfg.HTTPCert, cfg.HTTPKey, err)
		}
	}
}
