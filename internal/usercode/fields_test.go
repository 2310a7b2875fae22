package usercode_test

import (
	"slices"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

type limits struct {
	Most int
	Wait func()
}

type settings struct {
	Name   string
	Every  time.Duration
	Names  []string
	Limits limits
	hidden int
}

// Go can't compare types of two instances of one generic type: the defaults may have another type than the config.
type otherSettings struct {
	Limits limits
	Names  []string
	Every  time.Duration
	Name   int
}

func TestFillInSetsOnlyZeroFields(t *testing.T) {
	t.Parallel()
	called := false
	config := settings{Every: time.Second, Limits: limits{Most: 3}}
	usercode.FillIn(&config, otherSettings{
		Every: time.Minute, Names: []string{"a"}, Name: 7, Limits: limits{Most: 4, Wait: func() { called = true }},
	}, "Every", "Names", "Limits")
	if config.Name != "" || config.Every != time.Second || !slices.Equal(config.Names, []string{"a"}) || config.Limits.Most != 3 {
		t.Errorf("filled in: %+v", config)
	}
	if config.Limits.Wait(); !called {
		t.Error("the function of a struct is not filled in")
	}
	empty := settings{Names: []string{}}
	if usercode.FillIn(&empty, otherSettings{Names: []string{"a"}}, "Names"); len(empty.Names) > 0 {
		t.Errorf("an empty list that is not nil was replaced by %q", empty.Names)
	}
}

func TestSetFieldsNamesFieldsOfStructs(t *testing.T) {
	t.Parallel()
	config := settings{Name: "a", Limits: limits{Most: 1, Wait: func() {}}, hidden: 1}
	for name, test := range map[string]struct{ got, want []string }{
		"all":              {usercode.OtherFields(config), []string{"Name", "Limits.Most", "Limits.Wait"}},
		"except a struct":  {usercode.OtherFields(config, "Limits"), []string{"Name"}},
		"among":            {usercode.SetFields(config, "Limits.Wait", "Every", "Lim"), []string{"Limits.Wait"}},
		"among a struct":   {usercode.SetFields(config, "Limits"), []string{"Limits.Most", "Limits.Wait"}},
		"of a zero config": {usercode.OtherFields(settings{}), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %q, want %q", name, test.got, test.want)
		}
	}
}
