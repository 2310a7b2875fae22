package price

import "testing"

func TestTotal(t *testing.T) {
	if got := Total(1, 2); got != 3 {
		t.Errorf("got %d", got)
	}
}

func TestHalve(t *testing.T) {
	if got := Halve(4); got != 2 {
		t.Errorf("got %d", got)
	}
}

func TestDiscount(t *testing.T) {
	if Discount(1) || !Discount(1000) {
		t.Error("wrong discount")
	}
}
