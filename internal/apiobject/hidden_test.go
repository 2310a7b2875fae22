package apiobject

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestHides(t *testing.T) {
	t.Parallel()
	account := schema.GroupKind{Group: "example.com", Kind: "Account"}
	var s HiddenFields
	for _, path := range []string{
		"spec.users.token", `spec.options["tls.key"]`, "status.session",
		`spec.stores["a.b/key"].value`, `spec.odd["a]b"]`,
	} {
		if err := s.Add(account, path); err != nil {
			t.Fatal(err)
		}
	}
	lastApplied := "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"
	for _, test := range []struct {
		kind schema.GroupKind
		path string
		want bool
	}{
		{account, "spec.users[name=web].token", true},
		{account, "spec.users[0].token", true},
		{account, "spec.users[0].token.value", true},
		{account, "spec.users[name=web]", true}, // contains a token
		{account, "spec.users", true},
		{account, "spec", true},
		{account, "", true},
		{account, "spec.users[name=token].role", false},
		{account, "spec.users[name=web].role", false},
		{account, "spec.users[name=web].tokens", false},
		{account, "spec.users[web].token", true},
		{account, "spec.users[web]", true},
		{account, "spec.users[token].role", true},          // also the API server's path of a key
		{account, "spec.stores[web][a.b/key].value", true}, // a plain word in brackets is never a key
		{account, "spec.stores[web][a.b/other].value", false},
		{account, "spec.stores[my.store][a.b/key].value", true},
		{account, "spec.stores[my.store][a.b/other].value", false},
		{account, "spec.stores[my.store].other", false},
		{account, "spec.options[tls.key]", true},
		{account, "spec.options[tls.crt]", false},
		{account, "spec.options.plain", false},
		{account, "spec.options.tls.key", true}, // as in errors of the API server
		{account, "spec.options.tls.key.part", true},
		{account, "spec.options.tls", true}, // may contain it
		{account, "spec.options.tls.crt", false},
		{account, "spec.options.tls.keys", false},
		{account, `spec.options["tls.key"]`, true},
		{account, "spec.stores[0][a.b/key].value", true}, // a list of maps
		{account, "spec.stores[name=x][a.b/key].value", true},
		{account, "spec.stores[0].a.b/key.value", true},
		{account, "spec.stores[0][a.b/other].value", false},
		{account, "spec.stores[0].a.b/key.name", false},
		{account, "spec.odd[a]b]", true},
		{account, "status.session", true},
		{account, "status.phase", false},
		{account, "data", false},
		{account, lastApplied, true},
		{account, "metadata.annotations[example.com/owner]", false},
		{account, "metadata.labels", false},
		{schema.GroupKind{Group: "other.example.com", Kind: "Account"}, "spec.users", false},
		{schema.GroupKind{Kind: "ConfigMap"}, "data", false},
		{schema.GroupKind{Kind: "ConfigMap"}, lastApplied, false},
		{schema.GroupKind{Kind: "Secret"}, "data.password", true},
		{schema.GroupKind{Kind: "Secret"}, "data[tls.key]", true},
		{schema.GroupKind{Kind: "Secret"}, "stringData", true},
		{schema.GroupKind{Kind: "Secret"}, lastApplied, true},
		{schema.GroupKind{Kind: "Secret"}, "type", false},
		{schema.GroupKind{Kind: "Secret"}, "metadata.labels[data]", false},
	} {
		if got := s.Hides(test.kind, test.path); got != test.want {
			t.Errorf("Hides(%s, %q) = %t, want %t", test.kind, test.path, got, test.want)
		}
	}
	for _, path := range []string{"", ".", "spec..a", "spec.", `spec["a`, "spec[a]", "spec[0]"} {
		if err := s.Add(account, path); err == nil {
			t.Errorf("Add(%q) returns no error", path)
		}
	}
}

func TestShownPathEndsAtHiddenField(t *testing.T) {
	t.Parallel()
	account, secret := schema.GroupKind{Group: "example.com", Kind: "Account"}, schema.GroupKind{Kind: "Secret"}
	var s HiddenFields
	for _, path := range []string{"spec.tokens", "spec.users.name", "spec.data", `spec.options["tls.key"]`, "status"} {
		if err := s.Add(account, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		kind       schema.GroupKind
		path, want string
	}{
		{account, "spec.tokens.hunter2", "spec.tokens"},
		{account, "spec.tokens[hunter.2].uses[0]", "spec.tokens"},
		{account, "spec.tokens", "spec.tokens"},
		{account, "spec.users[name=hunter2].role", "spec.users[(hidden)].role"},
		{account, `spec.users[name="hunter2",port=80].role`, "spec.users[(hidden)].role"},
		{account, `spec.users[port=80,name="hunter2"].role`, "spec.users[(hidden)].role"},
		{account, "spec.users[hunter2].role", "spec.users[(hidden)].role"},
		{account, "spec.users[0].role", "spec.users[0].role"},
		{account, "spec.users[port=80].role", "spec.users[port=80].role"},
		{account, "spec.options[tls.crt].lines", "spec.options[tls.crt].lines"},
		{account, "spec.options[tls.key].lines", "spec.options[tls.key]"},
		{account, "spec.data.hunter2", "spec.data"},
		{account, "status.sessions[name=hunter2]", "status"},
		{account, "spec", "spec"},
		{account, "", ""},
		{secret, "data.password", "data.password"},
		{secret, "data[tls.key]", "data[tls.key]"},
		{secret, "metadata.labels[a.b/c]", "metadata.labels[a.b/c]"},
	} {
		hides := func(path string) bool { return s.Hides(test.kind, path) }
		if got := ShownPath(test.path, hides); got != test.want {
			t.Errorf("ShownPath(%s, %q) = %q, want %q", test.kind, test.path, got, test.want)
		}
		if got, want := HideInText(`unknown field "`+test.path+`": no, 5.`, hides), `unknown field "`+test.want+
			`": no, 5.`; !strings.Contains(test.path, `"`) && got != want {
			t.Errorf("HideInText: %s, want %s", got, want)
		}
	}
}
