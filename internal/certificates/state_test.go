package certificates

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

var testPolicy = Policy{AuthorityLife: 90 * 24 * time.Hour, LeafLife: 6 * 24 * time.Hour, Overlap: 15 * time.Minute, Poll: time.Minute} //nolint:gochecknoglobals // a constant

// clientTrusts reports why a client with the bundle does not accept the server's certificate.
func clientTrusts(bundle []byte, leaf Pair, name string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	cert, err := leaf.Certificate()
	if err != nil {
		return err
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
	return err
}

// replica is a server that reads the State, serves a leaf, and distributes bundles.
type replica struct {
	skew         time.Duration
	leaf         Pair
	trustedSince map[string]time.Time // by the authority
}

// sync reads the State, and advances it. It returns the bundle that the replica distributes.
func (r *replica) sync(t *testing.T, data *map[string][]byte, now time.Time) []byte {
	t.Helper()
	s := Parse(*data)
	since, ok := r.trustedSince[string(s.Next.Cert)]
	following, reasons, err := s.Advance(testPolicy, []string{serverName}, now.Add(r.skew), ok && now.Sub(since) >= testPolicy.Overlap)
	if err != nil {
		t.Fatal(err)
	}
	if len(reasons) > 0 {
		s, *data = following, following.Data()
		if got := Parse(*data); !reflect.DeepEqual(got, s) {
			t.Fatal("the parsed state differs")
		}
	}
	r.leaf = s.Leaf
	for _, cert := range s.Trusted {
		if _, ok := r.trustedSince[string(cert)]; !ok {
			r.trustedSince[string(cert)] = now
		}
	}
	return s.Bundle()
}

const serverName = "operator.shop.svc"

// Replicas with clocks that differ by up to 10 minutes, and that miss every third read, share a State through three lives
// of an authority. Clients have bundles that are up to half an Overlap old, and accept each replica at all times.
func TestRotationsKeepTrust(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testlength.Count(1, 6)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // for a test
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			replicas := []*replica{{}, {skew: 5 * time.Minute}, {skew: -5 * time.Minute}}
			var data map[string][]byte
			for _, r := range replicas {
				r.trustedSince = map[string]time.Time{}
				r.sync(t, &data, start)
			}
			type sent struct {
				at     time.Time
				bundle []byte
			}
			bundles := []sent{{start, Parse(data).Bundle()}}
			accepted := map[string]time.Time{} // the last check of a bundle and a leaf
			leaves, authorities := map[string]bool{}, map[string]bool{}
			changed := start
			for now := start; now.Before(start.Add(3 * testPolicy.AuthorityLife)); {
				for _, r := range replicas {
					if random.IntN(3) == 0 {
						continue
					}
					if bundle := r.sync(t, &data, now); !bytes.Equal(bundle, bundles[len(bundles)-1].bundle) {
						bundles = append(bundles, sent{now, bundle})
						changed = now
					}
					if !leaves[string(r.leaf.Cert)] {
						changed = now
					}
					leaves[string(r.leaf.Cert)], authorities[string(Parse(data).Signer.Cert)] = true, true
				}
				for len(bundles) > 1 && now.Sub(bundles[1].at) > testPolicy.Overlap/2 {
					bundles = bundles[1:]
				}
				for _, b := range bundles {
					for i, r := range replicas {
						key := string(b.bundle) + string(r.leaf.Cert)
						if last, ok := accepted[key]; ok && now.Sub(last) < 12*time.Hour {
							continue
						}
						accepted[key] = now
						if err := clientTrusts(b.bundle, r.leaf, serverName, now); err != nil {
							t.Fatalf("%s after the start, replica %d: %v", now.Sub(start), i, err)
						}
					}
				}
				// Nothing happens in most of the time.
				if now.Sub(changed) > 3*testPolicy.Overlap {
					now = now.Add(time.Duration(random.Int64N(int64(testPolicy.LeafLife / 10))))
				} else {
					now = now.Add(testPolicy.Poll)
				}
			}
			if len(authorities) < 4 || len(leaves) < 60 || len(leaves) > 100 {
				t.Errorf("%d authorities, %d certificates", len(authorities), len(leaves))
			}
		})
	}
}

// A replica whose clock is ahead and one with the correct clock do not replace each other's certificates without end, and
// clients accept both of them.
func TestClockThatIsAheadDoesNotReplaceWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-5 * time.Hour, 3 * 24 * time.Hour} {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		replicas := []*replica{{skew: skew}, {}}
		for _, r := range replicas {
			r.trustedSince = map[string]time.Time{}
		}
		var data map[string][]byte
		bundles, leaves := map[string]bool{}, map[string]bool{}
		for now := start; now.Before(start.Add(testPolicy.AuthorityLife)); now = now.Add(4 * time.Hour) {
			for _, r := range replicas {
				r.sync(t, &data, now)
			}
			if err := clientTrusts(Parse(data).Bundle(), Parse(data).Leaf, serverName, now); err != nil {
				t.Fatalf("skew %s, %s after the start: %v", skew, now.Sub(start), err)
			}
			bundles[string(data[keyBundle])], leaves[string(data[keyLeafCert])] = true, true
		}
		// Certificates live for six days, of which the clock can take three.
		if len(bundles) > 6 || len(leaves) > 80 {
			t.Errorf("skew %s: %d bundles, %d certificates", skew, len(bundles), len(leaves))
		}
	}
}

// Whatever somebody writes to the Secret, the next State is valid, and a second Advance changes nothing.
func TestAdvanceRepairsStates(t *testing.T) {
	t.Parallel()
	names := []string{"operator.shop.svc", "127.0.0.1", "::1"}
	now := time.Now()
	valid, _, err := State{}.Advance(testPolicy, names, now, false)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := NewAuthority("old", now.Add(-2*testPolicy.AuthorityLife), testPolicy.AuthorityLife)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := NewAuthority("foreign", now, testPolicy.AuthorityLife)
	if err != nil {
		t.Fatal(err)
	}
	// ahead returns a state of a replica whose clock was ahead.
	ahead := func(by time.Duration) State {
		s, _, err := State{}.Advance(testPolicy, names, now.Add(by), false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// limited returns an authority that cannot sign certificates of the servers.
	limited := func(limit func(*x509.Certificate)) Pair {
		pair, err := issue("limited", now, testPolicy.AuthorityLife, nil, func(template, _ *x509.Certificate) {
			template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
			limit(template)
		})
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	replace := func(data map[string][]byte, pair Pair) {
		data[keyBundle], data[keySignerCert], data[keySignerKey] = pair.Cert, pair.Cert, pair.Key
	}
	for name, edit := range map[string]func(data map[string][]byte){
		"clock was an hour and a second ahead": func(data map[string][]byte) { maps.Copy(data, ahead(time.Hour+time.Second).Data()) },
		"clock was years ahead":                func(data map[string][]byte) { maps.Copy(data, ahead(10*testPolicy.AuthorityLife).Data()) },
		"leaf of a clock that was ahead": func(data map[string][]byte) {
			leaf, err := valid.Signer.NewServer(names, now.Add(2*time.Hour), testPolicy.LeafLife)
			if err != nil {
				t.Fatal(err)
			}
			data[keyLeafCert], data[keyLeafKey] = leaf.Cert, leaf.Key
		},
		"valid leaf of a signer that is not valid yet": func(data map[string][]byte) {
			signer := ahead(2 * time.Hour).Signer
			leaf, err := signer.NewServer(names, now, testPolicy.LeafLife)
			if err != nil {
				t.Fatal(err)
			}
			replace(data, signer)
			data[keyLeafCert], data[keyLeafKey] = leaf.Cert, leaf.Key
		},
		"next of a clock that was ahead": func(data map[string][]byte) {
			next := ahead(2 * time.Hour).Signer
			data[keyNextCert], data[keyNextKey] = next.Cert, next.Key
		},
		"signer for other names": func(data map[string][]byte) {
			replace(data, limited(func(c *x509.Certificate) {
				c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"other.org"}
			}))
		},
		"signer for clients": func(data map[string][]byte) {
			replace(data, limited(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }))
		},
		"signer that may not sign": func(data map[string][]byte) {
			replace(data, limited(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }))
		},
		"empty":              func(data map[string][]byte) { clear(data) },
		"nothing":            func(map[string][]byte) {},
		"no leaf":            func(data map[string][]byte) { delete(data, keyLeafCert) },
		"leaf's key is lost": func(data map[string][]byte) { data[keyLeafKey] = nil },
		"leaf is an authority": func(data map[string][]byte) {
			data[keyLeafCert], data[keyLeafKey] = data[keySignerCert], data[keySignerKey]
		},
		"signer is a leaf": func(data map[string][]byte) {
			data[keySignerCert], data[keySignerKey] = data[keyLeafCert], data[keyLeafKey]
		},
		"no signer":      func(data map[string][]byte) { delete(data, keySignerCert) },
		"key of another": func(data map[string][]byte) { data[keySignerKey] = foreign.Key },
		"foreign signer": func(data map[string][]byte) { data[keySignerCert], data[keySignerKey] = foreign.Cert, foreign.Key },
		"expired signer": func(data map[string][]byte) { data[keySignerCert], data[keySignerKey] = expired.Cert, expired.Key },
		"expired next":   func(data map[string][]byte) { data[keyNextCert], data[keyNextKey] = expired.Cert, expired.Key },
		"next is the signer": func(data map[string][]byte) {
			data[keyNextCert], data[keyNextKey] = data[keySignerCert], data[keySignerKey]
		},
		"no bundle":        func(data map[string][]byte) { delete(data, keyBundle) },
		"bundle of others": func(data map[string][]byte) { data[keyBundle] = foreign.Cert },
		"bundle with text": func(data map[string][]byte) { data[keyBundle] = append([]byte("# text\n"), data[keyBundle]...) },
		"garbage": func(data map[string][]byte) {
			for key := range data {
				data[key] = []byte("garbage")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := valid.Data()
			edit(data)
			s, reasons, err := Parse(data).Advance(testPolicy, names, now, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(reasons)
			for _, server := range names {
				if server == "::1" {
					server = "[::1]"
				}
				if err := clientTrusts(s.Bundle(), s.Leaf, server, now); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.TLS(); err != nil || !bytes.Equal(s.Issuer(), s.Signer.Cert) {
				t.Error("the leaf is not usable", err)
			}
			if _, reasons, err := Parse(s.Data()).Advance(testPolicy, names, now, false); err != nil || len(reasons) > 0 {
				t.Error("a second Advance changes the state:", reasons, err)
			}
		})
	}
	if _, _, err := valid.Advance(testPolicy, nil, now, false); err == nil {
		t.Error("no error without names")
	}
	renamed, reasons, err := valid.Advance(testPolicy, []string{"other.shop.svc"}, now, false)
	if err != nil || len(reasons) != 1 || clientTrusts(valid.Bundle(), renamed.Leaf, "other.shop.svc", now) != nil {
		t.Error(reasons, err)
	}
}
