package leader

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewSetsDefaults(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type times struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }
	for name, tt := range map[string]struct {
		config Config
		want   times
	}{
		"nothing set":        {Config{}, times{15 * s, 10 * s, 2 * s}},
		"only LeaseDuration": {Config{LeaseDuration: time.Minute}, times{time.Minute, 10 * s, 2 * s}},
		"only RenewDeadline": {Config{RenewDeadline: 5 * s}, times{15 * s, 5 * s, 2 * s}},
		"only RetryPeriod":   {Config{RetryPeriod: s}, times{15 * s, 10 * s, s}},
		"everything set": {
			Config{LeaseDuration: 9 * s, RenewDeadline: 6 * s, RetryPeriod: 3 * s}, times{9 * s, 6 * s, 3 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.config.Cluster, tt.config.Name, tt.config.Namespace = connect(t, nil), "printer", "prod"
			e, err := New(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			got := times{e.config.LeaseDuration, e.config.RenewDeadline, e.config.RetryPeriod}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("times differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewIdentity(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	identity := func() string {
		e, err := New(Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod"})
		if err != nil {
			t.Fatal(err)
		}
		return e.Status().Identity
	}
	one, two := identity(), identity()
	if want := regexp.MustCompile("^" + regexp.QuoteMeta(host) + "_[0-9a-f-]{36}$"); !want.MatchString(one) {
		t.Errorf("identity is %q, want it to match %s", one, want)
	}
	if one == two {
		t.Errorf("two electors share the identity %q", one)
	}
}

func TestNewReadsPodNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tt := range map[string]struct {
		file, namespace string
		want, err       string
	}{
		"in a Pod":                  {file: file("pod", "prod\n"), want: "prod/printer"},
		"set in the config as well": {file: file("other", "prod"), namespace: "mine", want: "mine/printer"},
		"outside a Pod":             {file: filepath.Join(dir, "none"), err: "Namespace is required outside a Pod"},
		"an empty file":             {file: file("empty", "\n"), err: "Namespace is required outside a Pod"},
		"a file that is a folder":   {file: dir, err: "read the Pod's namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := newElector(Config{Cluster: connect(t, nil), Name: "printer", Namespace: tt.namespace}, tt.file)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error is %v, want %q in it", err, tt.err)
				}
			case err != nil:
				t.Error(err)
			case e.Status().Lease != tt.want:
				t.Errorf("lease is %s, want %s", e.Status().Lease, tt.want)
			}
		})
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := newElector(Config{
		Labels:        map[string]string{"a b": "c", "ok": "yes"},
		LeaseDuration: 1500 * time.Millisecond,
		RenewDeadline: 2 * time.Second,
		RetryPeriod:   -time.Second,
	}, filepath.Join(t.TempDir(), "none"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Cluster is required", "Name is required", "Namespace is required", `Labels: "a b"`,
		"whole second", "longer than RenewDeadline", "RetryPeriod is -1s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
}

func TestNewRejects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a name in upper case":       {func(c *Config) { c.Name = "Printer" }, `Name "Printer"`},
		"a namespace with a slash":   {func(c *Config) { c.Namespace = "a/b" }, `Namespace "a/b"`},
		"a label value with a space": {func(c *Config) { c.Labels = map[string]string{"a": "b c"} }, `"b c"`},
		"a negative lease":           {func(c *Config) { c.LeaseDuration = -time.Second }, "LeaseDuration is -1s"},
		"a negative deadline":        {func(c *Config) { c.RenewDeadline = -time.Second }, "RenewDeadline is -1s"},
		"a lease as short as the deadline": {
			func(c *Config) { c.LeaseDuration = 10 * time.Second }, "longer than RenewDeadline, 10s",
		},
		"a deadline of 1.2 retry periods": {
			func(c *Config) { c.RenewDeadline = 2400 * time.Millisecond }, "longer than 2.4s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod"}
			tt.change(&config)
			_, err := New(config)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestNewCopiesLabels(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "printer"}
	e, err := New(Config{Cluster: connect(t, nil), Name: "printer", Namespace: "prod", Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	labels["app"] = "changed"
	if diff := cmp.Diff(map[string]string{"app": "printer"}, e.config.Labels); diff != "" {
		t.Errorf("labels differ (-want +got):\n%s", diff)
	}
}
