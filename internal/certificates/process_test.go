package certificates

import (
	"testing"
	"time"
)

func TestCertificateOfProcess(t *testing.T) {
	t.Parallel()
	pair, err := OfProcess("localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1"} {
		if err := pair.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if now := time.Now(); pair.Leaf.NotBefore.After(now.Add(-Skew)) || pair.Leaf.NotAfter.Before(now.Add(9*365*24*time.Hour)) {
		t.Errorf("it is valid from %s to %s", pair.Leaf.NotBefore, pair.Leaf.NotAfter)
	}
}
