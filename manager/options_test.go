package manager

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

func newFlags() *flag.FlagSet {
	flags := flag.NewFlagSet("webapp", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each flag is set by each source, and the other fields keep their defaults.
func TestOptionsFromEachSource(t *testing.T) {
	t.Setenv("KUBECONFIG", "") // the machine may have one
	var defaults Options
	defaults.AddFlags(newFlags())
	samples := map[string]struct {
		text string
		want func(o *Options)
	}{
		"kubeconfig":           {"/k", func(o *Options) { o.Kubeconfig = "/k" }},
		"context":              {"c", func(o *Options) { o.Context = "c" }},
		"as":                   {"alice", func(o *Options) { o.As = "alice" }},
		"as-group":             {"a,b", func(o *Options) { o.As, o.AsGroups = "user", []string{"a", "b"} }},
		"kube-api-qps":         {"2.5", func(o *Options) { o.QPS = 2.5 }},
		"kube-api-burst":       {"10000000", func(o *Options) { o.Burst = 10_000_000 }},
		"read-only":            {"true", func(o *Options) { o.ReadOnly = true }},
		"namespaces":           {"a,b", func(o *Options) { o.Namespaces = []string{"a", "b"} }},
		"write-limit":          {"0.5", func(o *Options) { o.WriteLimit = 0.5 }},
		"listen":               {":1", func(o *Options) { o.Listen = ":1" }},
		"probe-listen":         {":2", func(o *Options) { o.ProbeListen = ":2" }},
		"tls-cert-file":        {"/c", func(o *Options) { o.CertFile, o.KeyFile = "/c", "/k" }},
		"tls-private-key-file": {"/k", func(o *Options) { o.CertFile, o.KeyFile = "/c", "/k" }},
		"authorize":            {"true", func(o *Options) { o.Authorize = true }},
		"pprof":                {"true", func(o *Options) { o.Pprof = true }},
		"leader-elect":         {"true", func(o *Options) { o.LeaderElect, o.LeaseName = true, "lease" }},
		"lease-name":           {"webapp", func(o *Options) { o.LeaseName = "webapp" }},
		"lease-namespace":      {"s", func(o *Options) { o.LeaseNamespace = "s" }},
		"lease-duration":       {"20s", func(o *Options) { o.LeaseDuration = 20 * time.Second }},
		"renew-deadline":       {"11s", func(o *Options) { o.RenewDeadline = 11 * time.Second }},
		"retry-period":         {"1s", func(o *Options) { o.RetryPeriod = time.Second }},
		"shutdown-timeout":     {"1m", func(o *Options) { o.ShutdownTimeout = time.Minute }},
		"log-level":            {"warn,webapp=debug", func(o *Options) { o.LogLevels = logLevels(t, "warn,webapp=debug") }},
		"log-hide":             {"a,b", func(o *Options) { o.LogHide = []string{"a", "b"} }},
		"log-format":           {"json", func(o *Options) { o.LogFormat = "json" }},
		"config":               {writeFile(t, ""), nil},
	}
	flags := newFlags()
	new(Options).AddFlags(flags)
	flags.VisitAll(func(f *flag.Flag) {
		sample, ok := samples[f.Name]
		if !ok {
			t.Errorf("no sample for the flag %s", f.Name)
			return
		}
		parse := func(source string, args ...string) {
			t.Run(f.Name+" from "+source, func(t *testing.T) {
				var got Options
				want := defaults
				want.ConfigFile = map[bool]string{true: sample.text}[f.Name == "config"]
				if sample.want != nil {
					sample.want(&want)
				}
				// What other flags require.
				if f.Name == "as-group" {
					args = append(args, "--as=user")
				}
				if f.Name == "tls-cert-file" {
					args = append(args, "--tls-private-key-file=/k")
				}
				if f.Name == "tls-private-key-file" {
					args = append(args, "--tls-cert-file=/c")
				}
				if f.Name == "leader-elect" {
					args = append(args, "--lease-name=lease")
				}
				if source == "variable" {
					t.Setenv("OPERATOR_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), sample.text)
				}
				if source == "file" {
					want.ConfigFile = writeFile(t, f.Name+": "+sample.text)
					args = append(args, "--config="+want.ConfigFile)
				}
				if err := got.Parse(newFlags(), args); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Options{}), cmp.Transformer("", (*LogLevels).String)); diff != "" {
					t.Errorf("options (-want +got):\n%s", diff)
				}
			})
		}
		parse("flag", "--"+f.Name+"="+sample.text)
		if f.Name != "kubeconfig" {
			parse("variable")
		}
		if f.Name != "config" {
			parse("file")
		}
	})
}

func TestOptionsPrecedence(t *testing.T) {
	file := writeFile(t, `{"listen": ":file", "workers": 3, "as": "file", "as-group": ["file"]}`)
	for name, tc := range map[string]struct {
		args, env []string
		want      string
	}{
		"default":     {nil, nil, ":default 1 default [default]"},
		"file":        {[]string{"--config=" + file}, nil, ":file 3 file [file]"},
		"variable":    {nil, []string{"SHOP_LISTEN=:env", "SHOP_WORKERS=4", "SHOP_AS=env", "SHOP_AS_GROUP=env,e"}, ":env 4 env [env e]"},
		"flag":        {[]string{"--listen=:flag", "-workers", "5", "--as=flag", "--as-group=flag", "--as-group=f"}, nil, ":flag 5 flag [flag f]"},
		"empty":       {[]string{"--listen="}, []string{"SHOP_AS="}, " 1 default [default]"},
		"file by env": {nil, []string{"SHOP_CONFIG=" + file}, ":file 3 file [file]"},
		"all": {
			[]string{"--config=" + file, "--listen=:flag"},
			[]string{"SHOP_CONFIG=/missing", "SHOP_LISTEN=:env", "SHOP_WORKERS=4"},
			":flag 4 file [file]",
		},
		"another prefix": {nil, []string{"OPERATOR_LISTEN=:env"}, ":default 1 default [default]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, entry := range tc.env {
				variable, value, _ := strings.Cut(entry, "=")
				t.Setenv(variable, value)
			}
			o := Options{EnvPrefix: "SHOP", Listen: ":default", As: "default", AsGroups: []string{"default"}}
			flags := newFlags()
			workers := flags.Int("workers", 1, "a flag of the program")
			if err := o.Parse(flags, tc.args); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(o.Listen, " ", *workers, " ", o.As, " ", o.AsGroups); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// pflag sets the values without the knowledge of the flag.FlagSet.
func TestOptionsWithPFlag(t *testing.T) {
	t.Setenv("OPERATOR_LISTEN", ":env")
	t.Setenv("OPERATOR_AS", "env")
	var o Options
	goFlags, flags := newFlags(), pflag.NewFlagSet("webapp", pflag.ContinueOnError)
	o.AddFlags(goFlags)
	flags.AddGoFlagSet(goFlags)
	if err := flags.Parse([]string{"--listen", ":flag", "--leader-elect", "--lease-name=n", "--as-group=a", "--as-group=b"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Complete(goFlags, flags.Changed); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(o.Listen, " ", o.As, " ", o.LeaderElect, " ", o.AsGroups); got != ":flag env true [a b]" {
		t.Errorf("got %s", got)
	}
	if usage := flags.FlagUsages(); !strings.Contains(usage, "$OPERATOR_LISTEN") {
		t.Errorf("the usage has no environment variable:\n%s", usage)
	}
}

func TestOptionsReportEveryMistake(t *testing.T) {
	t.Setenv("OPERATOR_KUBE_API_QPS", "fast")
	t.Setenv("OPERATOR_LOG_LEVEL", "loud")
	file := writeFile(t, "listn: x\nretry-period: soon\nrenew-deadline:\nas: {user: x}\nconfig: other\nworkers: many\n")
	var o Options
	flags := newFlags()
	flags.Int("workers", 1, "a flag of the program")
	err := o.Parse(flags, []string{
		"--kube-api-burst=-1", "--lease-duration=x", "--unknown=1", "---", "--leader-elect", "--as-group=g", "--log-format=xml",
		"--shutdown-timeout=0s", "--config=" + file,
	})
	expectError(t, err,
		`-lease-duration`, "flag provided but not defined: -unknown", "bad flag syntax: ---",
		`environment variable OPERATOR_KUBE_API_QPS: invalid value "fast" for flag -kube-api-qps`,
		`environment variable OPERATOR_LOG_LEVEL: invalid value "loud"`,
		file+`: field "listn": unknown field`,
		`field "retry-period": invalid value "soon"`, `field "renew-deadline": it must be a text`, `field "as": it must be a text`,
		`field "config": unknown field`, `field "workers": invalid value "many"`,
		"kube-api-burst is -1", "leader-elect needs lease-name", "as-group needs as", "shutdown-timeout is 0s", `log-format is "xml"`)
}

func TestOptionsRejectFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ path, want string }{
		"missing":       {filepath.Join(t.TempDir(), "missing"), "read the file of --config"},
		"no YAML":       {writeFile(t, "{"), "must have the names of flags as fields"},
		"list":          {writeFile(t, "- a"), "must have the names of flags as fields"},
		"field twice":   {writeFile(t, "as: a\nas: b"), `"as"`},
		"YAML's false":  {writeFile(t, "lease-name: n"), `field "lease-name": false is not a text`},
		"number":        {writeFile(t, "as-group: [a, 017]"), `field "as-group": 15 is not a text`},
		"nested list":   {writeFile(t, "as: [[a]]"), `field "as"`},
		"list for text": {writeFile(t, "listen: [':1', ':2']"), `field "listen": [":1",":2"]: it must be one value`},
		"empty list":    {writeFile(t, "as-group: []"), `field "as-group"`},
		"two documents": {writeFile(t, "as: a\n---\nlisten: ':1'"), "more than one document"},
		"two objects":   {writeFile(t, `{"as": "a"}{"listen": ":1"}`), "more than one document"},
		"end of object": {writeFile(t, `{"as": "a"}}`), "must have the names of flags as fields"},
		"huge number":   {writeFile(t, "kube-api-burst: 99999999999999999999"), "value out of range"},
		"infinite":      {writeFile(t, "kube-api-qps: .inf"), "must have the names of flags as fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectError(t, new(Options).Parse(newFlags(), []string{"--config", tc.path}), tc.path, tc.want)
		})
	}
}

func TestOptionsAcceptFile(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"byte order mark": "\ufefflisten: ':1'", "CRLF": "listen: ':1'\r\n", "document start": "# comment\n---\nlisten: ':1'\n",
		"JSON": `{"listen": ":1"}` + "\n\n", "anchor": "as: &x ':1'\nlisten: *x",
	} {
		var o Options
		if err := o.Parse(newFlags(), []string{"--config", writeFile(t, text)}); err != nil || o.Listen != ":1" {
			t.Errorf("%s: got %q, %v", name, o.Listen, err)
		}
	}
}

func TestOptionsRejectFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		`the argument "false" is not a flag`:         "--leader-elect false --lease-name=x",
		`the argument "webapp" is not a flag`:        "webapp --listen=:1",
		"kube-api-qps is NaN":                        "--kube-api-qps=NaN",
		"kube-api-qps is +Inf":                       "--kube-api-qps=Inf",
		"write-limit is -1":                          "--write-limit=-1",
		"write-limit is +Inf":                        "--write-limit=Inf",
		`invalid value "" for flag -log-level`:       "--log-level=",
		`invalid value "9999999999h" for flag -retr`: "--retry-period=9999999999h",
		"shutdown-timeout is -1s":                    "--shutdown-timeout=1s --shutdown-timeout=-1s",
	} {
		expectError(t, new(Options).Parse(newFlags(), strings.Fields(args)), want)
	}
	o := Options{AsGroups: []string{"default"}}
	if err := o.Parse(newFlags(), []string{"--as=x", "--as-group=", "--as-group=,a,,b,"}); err != nil || fmt.Sprint(o.AsGroups) != "[a b]" {
		t.Errorf("got the groups %q, %v", o.AsGroups, err)
	}
}

func TestOptionsHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	flags := newFlags()
	flags.SetOutput(&out)
	flags.Int("workers", 7, "number of workers")
	o := Options{Listen: ":8080"}
	if err := o.Parse(flags, []string{"--as=x", "--help", "--unknown"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want flag.ErrHelp", err)
	}
	for _, want := range []string{
		"Usage of webapp:", `($OPERATOR_LISTEN) (default ":8080")`, "number of workers ($OPERATOR_WORKERS) (default 7)",
		"-kubeconfig file", "($KUBECONFIG)", "-shutdown-timeout duration", "(default 29s)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, out.String())
		}
	}
	own := 0
	flags.Usage = func() { own++ }
	if err := o.Parse(newFlags(), nil); err != nil {
		t.Fatal(err)
	}
	another := newFlags()
	another.Usage = flags.Usage
	if err := new(Options).Parse(another, []string{"-h"}); !errors.Is(err, flag.ErrHelp) || own != 1 {
		t.Errorf("got %v and %d calls of Usage, want flag.ErrHelp and 1", err, own)
	}
}

const kubeconfigText = `
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://one:1"}}, {name: two, cluster: {server: "https://two:1"}}]
contexts: [{name: one, context: {cluster: one, namespace: shop}}, {name: two, context: {cluster: two, namespace: mall}}]
`

func TestOptionsRESTConfig(t *testing.T) {
	file := writeFile(t, kubeconfigText)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"defaults":      {nil, "https://one:1 -1 0  []"},
		"context":       {[]string{"--context=two"}, "https://two:1 -1 0  []"},
		"limits":        {[]string{"--kube-api-qps=20", "--kube-api-burst=40"}, "https://one:1 20 40  []"},
		"impersonation": {[]string{"--as=alice", "--as-group=a,b"}, "https://one:1 -1 0 alice [a b]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []string{"flag", "variable", "file"} {
				var o Options
				t.Setenv("KUBECONFIG", "")
				args := tc.args
				switch source {
				case "flag":
					args = append(args, "--kubeconfig="+file)
				case "variable": // a list, which takes precedence over the file
					t.Setenv("KUBECONFIG", "/missing"+string(os.PathListSeparator)+file)
					args = append(args, "--config="+writeFile(t, "kubeconfig: /missing"))
				case "file":
					args = append(args, "--config="+writeFile(t, "kubeconfig: "+file))
				}
				if err := o.Parse(newFlags(), args); err != nil {
					t.Fatal(err)
				}
				config, err := o.RESTConfig()
				if err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprint(config.Host, " ", config.QPS, " ", config.Burst, " ", config.Impersonate.UserName, " ", config.Impersonate.Groups)
				if got != tc.want {
					t.Errorf("kubeconfig from %s: got %s, want %s", source, got, tc.want)
				}
			}
		})
	}
	o := Options{Kubeconfig: file, Context: "three"}
	_, err := o.Connect()
	expectError(t, err, `"three" does not exist`, "--context")
}

func TestOptionsNew(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "off")
	o := Options{
		Kubeconfig: writeFile(t, kubeconfigText), Context: "two", Listen: "127.0.0.1:0", LeaderElect: true, LeaseName: "webapp",
		LeaseDuration: 20 * time.Second, ShutdownTimeout: time.Minute, LogLevels: logLevels(t, "warn"),
	}
	cluster, err := o.Connect()
	if err != nil {
		t.Fatal(err)
	}
	var logger *slog.Logger
	newConfig := func(o Options, config Config) Config {
		t.Helper()
		m, err := o.New(cluster, config)
		if err != nil {
			t.Fatal(err)
		}
		logger = m.config.Logger
		m.config.Logger = nil
		return m.config
	}
	ignored := cmpopts.IgnoreUnexported(Config{}, kube.Cluster{})
	want := Config{
		Listen: "127.0.0.1:0", ShutdownTimeout: time.Minute,
		LeaderElection: &leader.Config{Cluster: cluster, Name: "webapp", Namespace: "mall", LeaseDuration: 20 * time.Second},
	}
	if diff := cmp.Diff(want, newConfig(o, Config{}), ignored); diff != "" {
		t.Errorf("config from the options (-want +got):\n%s", diff)
	}
	if logger.Enabled(t.Context(), slog.LevelInfo) || !logger.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("the manager's logger has another level than the options")
	}
	own := slog.New(slog.DiscardHandler)
	config := Config{
		Listen: "127.0.0.1:1", ShutdownTimeout: time.Second, Logger: own,
		LeaderElection: &leader.Config{Namespace: "own", Identity: "me"},
	}
	want = Config{
		Listen: "127.0.0.1:1", ShutdownTimeout: time.Second,
		LeaderElection: &leader.Config{Cluster: cluster, Name: "webapp", Namespace: "own", Identity: "me", LeaseDuration: 20 * time.Second},
	}
	if diff := cmp.Diff(want, newConfig(o, config), ignored); diff != "" {
		t.Errorf("config with own fields (-want +got):\n%s", diff)
	}
	if logger != own {
		t.Error("the options replaced the program's logger")
	}
	if config.LeaderElection.Name != "" {
		t.Error("New changed the caller's config")
	}
	o.LeaderElect = false
	if got := newConfig(o, config); got.LeaderElection != nil {
		t.Errorf("without LeaderElect the manager has a lease: %v", got.LeaderElection)
	}
	o.ProbeListen = "127.0.0.1:2"
	if got := newConfig(o, Config{ProbeListen: "127.0.0.1:3"}); got.ProbeListen != "127.0.0.1:3" {
		t.Errorf("the probes of the program are on %s", got.ProbeListen)
	}
	for _, config := range []Config{{}, {Listener: apitest.NewListener()}, {Listen: "127.0.0.1:4"}} {
		if got := newConfig(o, config); got.ProbeListen != "127.0.0.1:2" {
			t.Errorf("the probes are on %q", got.ProbeListen)
		}
	}
	o.Authorize, o.Pprof = true, true
	if got := newConfig(o, config); got.AuthorizeWith != cluster || !got.Pprof {
		t.Error("Authorize does not use the cluster, or Pprof is false")
	}
	o.CertFile, o.KeyFile = "/none/cert", "/none/key"
	_, err = o.New(cluster, Config{})
	expectError(t, err, "open /none/cert", "open /none/key")
	o.Listen = ""
	if got := newConfig(o, Config{}); got.certFile != "" || got.AuthorizeWith != nil || got.Pprof || got.ProbeListen == "" {
		t.Error("a manager without a server has its settings")
	}
	o.LeaderElect, o.LeaseName = true, ""
	_, err = o.New(cluster, Config{})
	expectError(t, err, "new manager", "Name is required")
}

func logLevels(t *testing.T, text string) *LogLevels {
	t.Helper()
	var levels LogLevels
	if err := levels.Set(text); err != nil {
		t.Fatal(err)
	}
	return &levels
}

func TestOptionsLogger(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"level":"DEBUG","msg":"x","a":1}`, "text": "level=DEBUG msg=x a=1", "": "level=DEBUG msg=x a=1"} {
		var out bytes.Buffer
		o := Options{LogFormat: format, LogLevels: logLevels(t, "debug")}
		logger := o.loggerTo(&out)
		logger.Debug("x", "a", 1)
		logger.Log(t.Context(), slog.LevelDebug-1, "y")
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, want) {
			t.Errorf("format %q: got %s", format, got)
		}
	}
}

// docs/settings.md has a table of the flags.
func TestOptionsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := newFlags()
	new(Options).AddFlags(flags)
	var table strings.Builder
	table.WriteString("| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		_, usage := flag.UnquoteUsage(f)
		usage, variable, _ := strings.Cut(strings.TrimSuffix(usage, ")"), " ($")
		fmt.Fprintf(&table, "| `--%s` | `%s` | %s | %s |\n", f.Name, variable, f.DefValue, usage)
	})
	if !strings.Contains(string(doc), strings.ReplaceAll(table.String(), "|  |", "| |")) {
		t.Errorf("docs/settings.md must contain this table:\n%s", strings.ReplaceAll(table.String(), "|  |", "| |"))
	}
}

// TestOptionsProgram is the program of the next test. In other processes it does nothing.
func TestOptionsProgram(t *testing.T) {
	t.Parallel()
	args, ok := os.LookupEnv("EVENKEEL_OPTIONS_TEST")
	if !ok {
		return
	}
	flags := flag.NewFlagSet("webapp", flag.ExitOnError)
	if err := new(Options).Parse(flags, strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	os.Exit(7)
}

func TestOptionsExitOnError(t *testing.T) {
	t.Parallel()
	for args, tc := range map[string]struct {
		status int
		out    string
	}{
		"--help":        {0, "Usage of webapp:"},
		"--as-group=a":  {2, "as-group needs as"},
		"--as=a --as=b": {7, ""},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOptionsProgram$")
			cmd.Env = append(os.Environ(), "EVENKEEL_OPTIONS_TEST="+args)
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tc.status || !strings.Contains(string(out), tc.out) {
				t.Errorf("exit status %d, want %d; output:\n%s", got, tc.status, out)
			}
		})
	}
}

// The lease does not move when the namespaces change: two replicas would lead during an update.
func TestLeaseDoesNotFollowNamespaces(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := writeFile(t, kubeconfigText)
	for _, arg := range []string{"--namespaces=", "--namespaces=*", "--namespaces=a,b"} {
		var o Options
		if err := o.Parse(newFlags(), []string{arg, "--kubeconfig=" + file, "--leader-elect", "--lease-name=x"}); err != nil {
			t.Fatal(err)
		}
		cluster, err := o.Connect()
		if err != nil {
			t.Fatal(err)
		}
		m, err := o.New(cluster, Config{})
		if err != nil || m.config.LeaderElection.Namespace != "shop" {
			t.Errorf("%s: %v", arg, err)
		}
		if limited := len(cluster.Namespaces()) == 2; limited != strings.HasSuffix(arg, "a,b") {
			t.Errorf("%s: limited to %q", arg, cluster.Namespaces())
		}
	}
}
