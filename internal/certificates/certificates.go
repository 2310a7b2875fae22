// Package certificates creates certificate authorities and the certificates of servers.
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Skew is more than the difference between the clocks of two hosts: certificates are valid that much before now.
const Skew = time.Hour

// Pair is a certificate and its key, in PEM.
type Pair struct {
	Cert, Key []byte
}

// NewAuthority returns a certificate authority for servers of name that is valid from Skew before now until life after
// now. Its subject differs from those of the servers, because a certificate with an equal issuer counts as self-signed.
func NewAuthority(name string, now time.Time, life time.Duration) (Pair, error) {
	return issue("authority of "+name, now, life, nil, func(template, _ *x509.Certificate) {
		template.IsCA = true
		template.BasicConstraintsValid = true
		template.MaxPathLenZero = true // it signs servers, and no other authority
		template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	})
}

// NewServer returns a certificate of a server with the names, which are host names or IP addresses. It is signed by the
// authority, and never valid longer than it.
func (p Pair) NewServer(names []string, now time.Time, life time.Duration) (Pair, error) {
	return p.New(x509.ExtKeyUsageServerAuth, names, now, life)
}

// New is NewServer for a certificate with another usage, which may be valid longer than the authority.
func (p Pair) New(usage x509.ExtKeyUsage, names []string, now time.Time, life time.Duration) (Pair, error) {
	if len(names) == 0 {
		return Pair{}, errors.New("a certificate of a server needs a name")
	}
	return issue(names[0], now, life, &p, func(template, authority *x509.Certificate) {
		if usage == x509.ExtKeyUsageServerAuth && template.NotAfter.After(authority.NotAfter) {
			template.NotAfter = authority.NotAfter
		}
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
		for _, name := range names {
			if ip := net.ParseIP(name); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, name)
			}
		}
	})
}

// OfProcess returns a self-signed certificate for a server whose clients do not verify it. It is valid for longer than
// any process runs.
func OfProcess(names ...string) (tls.Certificate, error) {
	now, life := time.Now(), 10*365*24*time.Hour
	authority, err := NewAuthority(names[0], now, life)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := authority.NewServer(names, now, life)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(leaf.Cert, leaf.Key)
}

// Certificate returns the parsed certificate.
func (p Pair) Certificate() (*x509.Certificate, error) {
	block, _ := pem.Decode(p.Cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the certificate is not in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// parse returns the certificate and its key.
func (p Pair) parse() (*x509.Certificate, any, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	return pair.Leaf, pair.PrivateKey, err
}

// issue returns a new certificate and its key. Without an authority it signs itself.
func issue(
	name string, now time.Time, life time.Duration, authority *Pair,
	complete func(template, authority *x509.Certificate),
) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	// A common name has at most 64 characters (RFC 5280, appendix A.1).
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name[:min(len(name), 64)]},
		NotBefore: now.Add(-Skew), NotAfter: now.Add(life),
	}
	parent, signer := template, any(key)
	if authority != nil {
		if parent, signer, err = authority.parse(); err != nil {
			return Pair{}, fmt.Errorf("read the certificate authority: %w", err)
		}
	}
	complete(template, parent)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}, nil
}
