// Package certificates creates certificate authorities and the certificates of servers.
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	template, key, err := newTemplate("authority of "+name, now, life)
	if err != nil {
		return Pair{}, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.MaxPathLenZero = true // it signs servers, and no other authority
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return sign(template, template, key, key)
}

// NewServer returns a certificate of a server with the names, which are host names or IP addresses. It is signed by the
// authority, and never valid longer than it.
func (p Pair) NewServer(names []string, now time.Time, life time.Duration) (Pair, error) {
	authority, signer, err := p.parse()
	if err != nil {
		return Pair{}, fmt.Errorf("read the certificate authority: %w", err)
	}
	if len(names) == 0 {
		return Pair{}, errors.New("a certificate of a server needs a name")
	}
	template, key, err := newTemplate(names[0], now, life)
	if err != nil {
		return Pair{}, err
	}
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return sign(template, authority, key, signer)
}

// Certificate returns the parsed certificate.
func (p Pair) Certificate() (*x509.Certificate, error) {
	block, _ := pem.Decode(p.Cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the certificate is not in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func (p Pair) parse() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := p.Certificate()
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, nil, errors.New("the key is not in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("the key is a %T: want ECDSA", parsed)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, errors.New("the key does not belong to the certificate")
	}
	return cert, key, nil
}

func newTemplate(name string, now time.Time, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	// A common name has at most 64 characters (RFC 5280, appendix A.1).
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name[:min(len(name), 64)]},
		NotBefore: now.Add(-Skew), NotAfter: now.Add(life),
	}, key, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
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
