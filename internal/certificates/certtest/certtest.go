// Package certtest makes client certificates for tests.
package certtest

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/certificates"
)

// NewClient returns the certificate of a client, signed by authority, and its key. It is valid from an hour before now
// until end.
func NewClient(tb testing.TB, authority certificates.Pair, end time.Time) certificates.Pair {
	tb.Helper()
	pair, err := authority.New(x509.ExtKeyUsageClientAuth, []string{"client"}, time.Now(), time.Until(end))
	if err != nil {
		tb.Fatal(err)
	}
	return pair
}
