package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is the lifetime of all certificates. It is long because a folder may be kept for long, certificates are not
// renewed, and nothing here is reachable from another machine.
const validity = 10 * 365 * 24 * time.Hour

// serviceIP is the first address of serviceRange (apiserver.go). The API server's own Service has it, so the
// certificate must contain it.
const serviceIP = "10.96.0.1"

// keyPair is a certificate with its key, both also as PEM.
type keyPair struct {
	cert            *x509.Certificate
	key             crypto.Signer
	certPEM, keyPEM []byte
}

// pki is the cluster's certificate authority. It signs the API server's certificate and those of users, with their name
// as common name and their groups as organizations.
type pki struct {
	dir string
	ca  keyPair
}

// openPKI loads or creates the authority, the API server's certificate and the key that signs service account tokens.
// It keeps existing certificates, so that clients of a restarted cluster keep working.
func openPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	ca, err := loadPair(dir, "ca")
	if errors.Is(err, fs.ErrNotExist) {
		ca, err = p.create()
	}
	if err != nil {
		return nil, err
	}
	p.ca = ca
	return p, nil
}

// create creates all files. The authority is written last, because openPKI takes its presence as proof that all files
// exist.
func (p *pki) create() (keyPair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "localcluster"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	ca, err := newPair(template, nil)
	if err != nil {
		return keyPair{}, err
	}
	server, err := newPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
	}, &ca)
	if err != nil {
		return keyPair{}, err
	}
	tokens, err := newPair(template, nil) // only its key is used
	if err != nil {
		return keyPair{}, err
	}
	return ca, errors.Join(
		writePrivate(filepath.Join(p.dir, "service-accounts.key"), tokens.keyPEM),
		server.write(p.dir, "apiserver"),
		ca.write(p.dir, "ca"),
	)
}

// client signs a new key pair for a user.
func (p *pki) client(u user) (keyPair, error) {
	pair, err := newPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: u.Name, Organization: u.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &p.ca)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing a certificate for user %q: %w", u.Name, err)
	}
	return pair, nil
}

// newPair creates a key and its certificate, signed by parent or by itself.
func newPair(template *x509.Certificate, parent *keyPair) (keyPair, error) {
	// P-256 instead of RSA: a key takes microseconds, and each new cluster needs several.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return keyPair{}, fmt.Errorf("making a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // clocks of containers may lag
	template.NotAfter = template.NotBefore.Add(validity)
	issuer := &keyPair{cert: template, key: key}
	if parent != nil {
		issuer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing the certificate of %s: %w", template.Subject, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return parsePair(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	)
}

func parsePair(certPEM, keyPEM []byte) (keyPair, error) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return keyPair{}, errors.New("no PEM block in a certificate or key")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return keyPair{}, fmt.Errorf("reading a certificate: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return keyPair{}, fmt.Errorf("reading a key: %w", err)
	}
	return keyPair{cert: cert, key: key, certPEM: certPEM, keyPEM: keyPEM}, nil
}

func loadPair(dir, name string) (keyPair, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return keyPair{}, fmt.Errorf("reading a certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return keyPair{}, fmt.Errorf("reading a key: %w", err)
	}
	return parsePair(certPEM, keyPEM)
}

// write stores the key before the certificate: loadPair reads the certificate first, so it treats a half-written pair
// as missing.
func (k keyPair) write(dir, name string) error {
	if err := writePrivate(filepath.Join(dir, name+".key"), k.keyPEM); err != nil {
		return fmt.Errorf("writing the key of %s: %w", name, err)
	}
	if err := writePrivate(filepath.Join(dir, name+".crt"), k.certPEM); err != nil {
		return fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	return nil
}
