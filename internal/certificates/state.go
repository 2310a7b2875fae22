package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"
)

// The keys of a Secret with a State. The first three are those of a Secret of the type kubernetes.io/tls with a bundle.
const (
	keyBundle     = "ca.crt"
	keyLeafCert   = "tls.crt"
	keyLeafKey    = "tls.key"
	keySignerCert = "signer.crt"
	keySignerKey  = "signer.key"
	keyNextCert   = "next.crt"
	keyNextKey    = "next.key"
)

// Policy determines when certificates are replaced.
type Policy struct {
	// AuthorityLife and LeafLife are the lives of new certificates. Each is replaced when less than a third is left.
	AuthorityLife, LeafLife time.Duration
	// Overlap is how long clients have trusted an authority before a server has a certificate of it, and half the time
	// for which they trust it after the last server had one.
	Overlap time.Duration
	// Poll is the interval at which replicas read the State.
	Poll time.Duration
}

// DefaultPolicy is the policy of programs: authorities live for five years, certificates of servers for 30 days.
func DefaultPolicy() Policy {
	const day = 24 * time.Hour
	return Policy{AuthorityLife: 5 * 365 * day, LeafLife: 30 * day, Overlap: 15 * time.Minute, Poll: 10 * time.Second}
}

// State is what replicas share: the authority that signs, the certificate of the servers, and the trusted authorities.
type State struct {
	Signer Pair
	// Next is the next signer, which clients already trust. It is empty most of the time.
	Next Pair
	Leaf Pair
	// Trusted has the certificates of all authorities that clients must trust, in PEM.
	Trusted [][]byte
}

// Parse returns the State in the data of a Secret. Parts that are missing or not valid are empty: anybody who may write
// the Secret can change them.
func Parse(data map[string][]byte) State {
	s := State{
		Signer: Pair{data[keySignerCert], data[keySignerKey]}, Next: Pair{data[keyNextCert], data[keyNextKey]},
		Leaf: Pair{data[keyLeafCert], data[keyLeafKey]},
	}
	for _, pair := range []*Pair{&s.Signer, &s.Next} {
		if cert, _, err := pair.parse(); err != nil || !cert.IsCA {
			*pair = Pair{}
		}
	}
	if _, _, err := s.Leaf.parse(); err != nil {
		s.Leaf = Pair{}
	}
	rest := data[keyBundle]
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return s
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.IsCA {
			s.Trusted = append(s.Trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
		}
	}
}

// HasState reports whether the data of a Secret has an authority, valid or not.
func HasState(data map[string][]byte) bool {
	return data[keySignerCert] != nil || data[keySignerKey] != nil
}

// Data returns the data of a Secret with the State.
func (s State) Data() map[string][]byte {
	data := map[string][]byte{
		keyBundle: s.Bundle(), keyLeafCert: s.Leaf.Cert, keyLeafKey: s.Leaf.Key, keySignerCert: s.Signer.Cert,
		keySignerKey: s.Signer.Key,
	}
	if s.Next.Cert != nil {
		data[keyNextCert], data[keyNextKey] = s.Next.Cert, s.Next.Key
	}
	return data
}

// Bundle returns the trusted authorities as one PEM text.
func (s State) Bundle() []byte { return bytes.Join(s.Trusted, nil) }

// TLS returns the certificate of the servers.
func (s State) TLS() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(s.Leaf.Cert, s.Leaf.Key)
	return &pair, err
}

// Issuer returns the certificate of the authority that has signed the leaf, or nil if it is not trusted.
func (s State) Issuer() []byte {
	leaf, err := s.Leaf.Certificate()
	if err != nil {
		return nil
	}
	for _, authority := range s.Trusted {
		if signed(leaf, authority) {
			return authority
		}
	}
	return nil
}

// signed reports whether the authority has signed the certificate. Names of authorities are not unique, so it checks
// the signature.
func signed(leaf *x509.Certificate, authority []byte) bool {
	parent, err := Pair{Cert: authority}.Certificate()
	return err == nil && leaf.CheckSignatureFrom(parent) == nil
}

// Advance returns the State that should follow, with the reasons of the changes; none if nothing is due. names are
// those of the servers. nextTrusted is true if clients have trusted Next for at least Overlap. Another replica may have
// another clock, at most by Skew.
func (s State) Advance(policy Policy, names []string, now time.Time, nextTrusted bool) (State, []string, error) {
	if len(names) == 0 {
		return s, nil, errors.New("the server has no name")
	}
	next := s
	next.Trusted = slices.Clone(s.Trusted)
	var reasons []string
	var err error
	early := isEarly(next.Next, now)
	if next.Next.Cert != nil &&
		(early || remaining(next.Next, now) <= 0 || bytes.Equal(next.Next.Cert, next.Signer.Cert)) {
		next.Next = Pair{}
		reasons = append(reasons, "the next authority is not usable")
	}
	switch {
	case remaining(next.Signer, now) <= 0 || isEarly(next.Signer, now):
		// Clients do not trust a signer that is lost or not valid now: nothing is left to wait for.
		if next.Signer, err = NewAuthority(names[0], now, policy.AuthorityLife); err != nil {
			return s, nil, err
		}
		reasons = append(reasons, "no valid authority")
	case next.Next.Cert != nil && nextTrusted:
		next.Signer, next.Next = next.Next, Pair{}
		reasons = append(reasons, "the next authority is trusted")
	case next.Next.Cert == nil && (early || due(next.Signer, now, policy.AuthorityLife)):
		// One that is early is replaced by one that is valid now: a replica whose clock is ahead would write it again.
		if next.Next, err = NewAuthority(names[0], now, policy.AuthorityLife); err != nil {
			return s, nil, err
		}
		reasons = append(reasons, "the authority expires soon")
	}
	if reason := next.leafReason(policy, names, now); reason != "" {
		reasons = append(reasons, reason)
		if err := next.issue(policy, names, now); err != nil {
			// A signer that cannot issue a valid certificate is lost too.
			reasons = append(reasons, "the authority cannot sign: "+err.Error())
			if next.Signer, err = NewAuthority(names[0], now, policy.AuthorityLife); err != nil {
				return s, nil, err
			}
			if err := next.issue(policy, names, now); err != nil {
				return s, nil, err
			}
		}
	}
	if next.trust(policy, now) {
		reasons = append(reasons, "the trusted authorities change")
	}
	if len(reasons) == 0 {
		return s, nil, nil
	}
	return next, reasons, nil
}

// issue replaces the leaf by one that clients of the signer accept now.
func (s *State) issue(policy Policy, names []string, now time.Time) (err error) {
	if s.Leaf, err = s.Signer.NewServer(names, now, policy.LeafLife); err != nil {
		return err
	}
	leaf, err := s.Leaf.Certificate()
	if err != nil {
		return err
	}
	return verify(leaf, s.Signer, now)
}

// verify returns an error if clients that trust the signer do not accept the leaf now.
func verify(leaf *x509.Certificate, signer Pair, now time.Time) error {
	root, err := signer.Certificate()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err
}

// leafReason returns why the leaf must be replaced, or "".
func (s State) leafReason(policy Policy, names []string, now time.Time) string {
	leaf, err := s.Leaf.Certificate()
	switch {
	case err != nil:
		return "no valid certificate"
	case due(s.Leaf, now, policy.LeafLife) && remaining(s.Leaf, now) < remaining(s.Signer, now):
		return "the certificate expires soon"
	case !hasNames(leaf, names):
		return "the names of the server change"
	case verify(leaf, s.Signer, now) != nil:
		return "the certificate is of another authority, or not valid yet"
	}
	return ""
}

func hasNames(leaf *x509.Certificate, names []string) bool {
	for _, name := range names {
		if leaf.VerifyHostname(strings.Trim(name, "[]")) != nil {
			return false
		}
	}
	return true
}

// trust updates the trusted authorities: the signer and the next one are in it, and former signers as long as a server
// may have a certificate of them. It reports whether something has changed.
func (s *State) trust(policy Policy, now time.Time) bool {
	wanted := [][]byte{s.Signer.Cert}
	if s.Next.Cert != nil {
		wanted = append(wanted, s.Next.Cert)
	}
	leaf, err := s.Leaf.Certificate()
	switched := err == nil && now.Sub(leaf.NotBefore.Add(Skew)) > 2*policy.Overlap
	for _, cert := range s.Trusted {
		if !contains(wanted, cert) && !switched && remaining(Pair{Cert: cert}, now) > 0 {
			wanted = append(wanted, cert)
		}
	}
	if slices.EqualFunc(wanted, s.Trusted, bytes.Equal) {
		return false
	}
	s.Trusted = wanted
	return true
}

// Trust adds authorities to the trusted ones.
func (s *State) Trust(authorities [][]byte) {
	s.Trusted = slices.Clone(s.Trusted)
	for _, cert := range authorities {
		if !contains(s.Trusted, cert) {
			s.Trusted = append(s.Trusted, cert)
		}
	}
}

func contains(list [][]byte, cert []byte) bool {
	return slices.ContainsFunc(list, func(other []byte) bool { return bytes.Equal(other, cert) })
}

// remaining returns how long a certificate is still valid; 0 or less if it is not valid.
func remaining(p Pair, now time.Time) time.Duration {
	cert, err := p.Certificate()
	if err != nil {
		return 0
	}
	return cert.NotAfter.Sub(now)
}

// isEarly reports whether a certificate is not valid yet: a clock that was ahead by more than Skew has written it.
func isEarly(p Pair, now time.Time) bool {
	cert, err := p.Certificate()
	return err == nil && now.Before(cert.NotBefore)
}

// due reports whether less than a third of a certificate's life is left.
func due(p Pair, now time.Time, life time.Duration) bool { return remaining(p, now) < life/3 }
