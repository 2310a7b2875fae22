package cart

import "testing"

func TestLine(t *testing.T) {
	if got := Line("a"); got != "A!" {
		t.Errorf("got %q", got)
	}
}
