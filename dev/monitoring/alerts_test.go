package monitoring_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	alertsFile  = "../../docs/dashboards/alerts.yaml"
	runbookFile = "../../docs/operations.md"
	pageFile    = "../../docs/dashboards/README.md"
)

//nolint:gochecknoglobals // a flag must be defined before the tests begin
var update = flag.Bool("update", false, "write docs/dashboards/evenkeel.svg")

// firedAlerts evaluates all alert rules on scrapes, and returns the summaries of the alerts that fired, by the name of the
// rule.
func firedAlerts(t *testing.T, scrapes []scrape) map[string]string {
	t.Helper()
	samples := store(t, scrapes)
	fired := map[string]string{}
	m := rules.NewManager(&rules.ManagerOptions{
		Context: t.Context(), QueryFunc: rules.EngineQueryFunc(samples.engine, samples), Queryable: samples, AppendableV2: samples,
		NotifyFunc: func(_ context.Context, _ string, alerts ...*rules.Alert) {
			for _, alert := range alerts {
				if alert.State == rules.StateFiring {
					fired[alert.Labels.Get(model.AlertNameLabel)] = alert.Annotations.Get("summary")
				}
			}
		},
	})
	groups, errs := m.LoadGroups(scrapeInterval, labels.EmptyLabels(), "", nil, false, alertsFile)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	for at := samples.from; !at.After(samples.to); at = at.Add(scrapeInterval) {
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			groups[name].Eval(t.Context(), at)
			for _, rule := range groups[name].Rules() {
				if err := rule.LastError(); err != nil {
					t.Fatalf("evaluate %s: %v", rule.Name(), err)
				}
			}
		}
	}
	return fired
}

// scenarios are states of operators, with the alerts that fire in them.
func scenarios() map[string]scenario {
	return map[string]scenario{
		"healthy, with changes of the leader":  {healthy, nil},
		"handler stuck":                        {handlerStuck, []string{"EvenkeelHandlerStuck"}},
		"key fails":                            {keyFails, []string{"EvenkeelKeyFailing"}},
		"last retry failed":                    {keyStalled, []string{"EvenkeelKeyStalled"}},
		"all runs fail":                        {runsFail, []string{"EvenkeelKeyFailing", "EvenkeelRunsFail"}},
		"one panic":                            {handlerPanics, []string{"EvenkeelHandlerPanics"}},
		"more changes than workers can handle": {queueGrows, []string{"EvenkeelKeysWait", "EvenkeelQueueGrowing"}},
		"two writers of one field":             {hotLoop, []string{"EvenkeelHotLoop"}},
		"watch does not deliver":               {writeNotSeen, []string{"EvenkeelWriteNotSeen"}},
		"list forbidden": {listForbidden, []string{
			"EvenkeelInformerFailing", "EvenkeelInformerNotSynced", "EvenkeelNoLeader", // a candidate waits for its caches
		}},
		"API server unreachable": {serverUnreachable, []string{
			"EvenkeelCacheStale", "EvenkeelInformerFailing", "EvenkeelNoLeader", "EvenkeelRequestsFail",
		}},
		"leases in two namespaces": {twoLeaders, []string{"EvenkeelTwoLeaders"}},
		"webhook certificate":      {certificateExpires, []string{"EvenkeelWebhookCertificateExpires"}},
		"webhook without decision": {webhookFails, []string{"EvenkeelWebhookFails"}},
		"memory near its limit":    {memoryNearLimit, []string{"EvenkeelMemoryNearLimit"}},
		"process ends repeatedly":  {processRestarts, []string{"EvenkeelProcessRestarts"}},
	}
}

type scenario struct {
	run  func(w *world)
	want []string
}

// Exactly the alerts of its scenarios must fire, and each rule must have a scenario.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for name, tc := range scenarios() {
		for _, alert := range tc.want {
			tested[alert] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := firedAlerts(t, play(t, tc.run).scrapes)
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("fired alerts (-want +got):\n%s", diff)
			}
			for alert, summary := range got {
				if summary == "" || strings.Contains(summary, "<") {
					t.Errorf("the summary of %s is %q", alert, summary)
				}
				t.Log(summary)
			}
		})
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if !tested[rule.Alert] {
				t.Errorf("no scenario makes %s fire", rule.Alert)
			}
			delete(tested, rule.Alert)
		}
	}
	if len(tested) > 0 {
		t.Errorf("no such rules: %v", slices.Collect(maps.Keys(tested)))
	}
}

func readRules(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	return groups
}

// Each alert must link to a section of the runbook, and the page of the alerts must list it.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	sections := map[string]bool{}
	for line := range strings.Lines(readFile(t, runbookFile)) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			sections[strings.ReplaceAll(anchor, " ", "-")] = true
		}
	}
	page := readFile(t, pageFile)
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			section, found := strings.CutPrefix(rule.Annotations["runbook_url"], "https://github.com/evenkeel-go/evenkeel/blob/main/docs/operations.md#")
			if !found || !sections[section] {
				t.Errorf("%s: runbook_url %q is not a section of %s", rule.Alert, rule.Annotations["runbook_url"], runbookFile)
			}
			if row := fmt.Sprintf("| `%s` | %s |", rule.Alert, rule.Labels["severity"]); !strings.Contains(page, row) || !strings.Contains(page, "(../operations.md#"+section+")") {
				t.Errorf("%s must have a row that begins with %s, and a link to #%s", pageFile, row, section)
			}
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// play runs operators in virtual time. It returns the world for its scrapes and marks.
func play(t *testing.T, run func(w *world)) (w *world) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t)
		run(w)
	})
	return w
}

// change changes Websites, one each interval, until the time is over.
func (w *world) change(d, interval time.Duration) {
	next := time.Now()
	for end := time.Now().Add(d); time.Now().Before(end); {
		for ; !next.After(time.Now()); next = next.Add(interval) {
			w.changes++
			w.site(fmt.Sprint("site-", w.changes%20), w.changes)
		}
		w.wait(scrapeInterval)
	}
}

func healthy(w *world) {
	stop := w.operator("website-operator-0").start()
	w.wait(scrapeInterval) // it leads
	w.operator("website-operator-1").start()
	w.change(30*time.Minute, 20*time.Second)
	stop()
	w.change(10*time.Minute, 20*time.Second)
	w.operator("website-operator-0").start()
	w.change(20*time.Minute, 20*time.Second)
}

func handlerStuck(w *world) {
	o := w.operator("website-operator-0")
	release := make(chan struct{})
	o.controller.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
		if site.GetName() == "site-3" {
			<-release
		}
		return o.count(ctx, site)
	}
	o.start()
	w.change(15*time.Minute, 20*time.Second)
	close(release)
}

// failBroken makes the handler fail for the Website "broken".
func (o *operator) failBroken() {
	o.controller.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
		if site.GetName() == "broken" {
			return errors.New("the registry does not answer")
		}
		return o.count(ctx, site)
	}
}

func keyFails(w *world) {
	o := w.operator("website-operator-0")
	o.failBroken()
	o.start()
	w.site("broken", 1)
	w.change(45*time.Minute, 20*time.Second)
}

func keyStalled(w *world) {
	o := w.operator("website-operator-0")
	o.controller.Retry = retry.Config{Every: retry.Policy{MaxRetries: 3}}
	o.failBroken()
	o.start()
	w.site("broken", 1)
	w.change(10*time.Minute, 20*time.Second)
}

func runsFail(w *world) {
	o := w.operator("website-operator-0")
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error {
		return errors.New("the registry does not answer")
	}
	o.start()
	w.change(45*time.Minute, 20*time.Second)
}

func handlerPanics(w *world) {
	o := w.operator("website-operator-0")
	panics := 1
	o.controller.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
		if site.GetName() == "site-3" && panics > 0 && time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 10*time.Minute {
			panics--
			panic("index out of range")
		}
		return o.count(ctx, site)
	}
	o.start()
	w.change(30*time.Minute, 20*time.Second)
}

func queueGrows(w *world) {
	o := w.operator("website-operator-0")
	o.controller.Handler = func(context.Context, *unstructured.Unstructured) error {
		time.Sleep(time.Second)
		return nil
	}
	o.start()
	for i := range 8000 {
		w.site(fmt.Sprint("site-", i), 1)
		time.Sleep(200 * time.Millisecond)
		if i%75 == 0 {
			w.scrape()
		}
	}
}

func hotLoop(w *world) {
	o := w.operator("website-operator-0")
	o.controller.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
		if replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas"); replicas == 3 {
			return nil
		}
		_, err := o.client.Resource(websites()).Namespace(site.GetNamespace()).Patch(ctx, site.GetName(), types.MergePatchType,
			[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
		return err
	}
	o.start()
	end := time.Now().Add(20 * time.Minute)
	for time.Now().Before(end) {
		w.site("web", 5)
		w.wait(scrapeInterval)
	}
}

func writeNotSeen(w *world) {
	o := w.operator("website-operator-0")
	o.controller.Handler = func(ctx context.Context, site *unstructured.Unstructured) error {
		if site.GetName() != "web" {
			return o.count(ctx, site)
		}
		w.HoldWatches("websites")
		return errors.Join(o.count(ctx, site), controller.RequeueAfter(time.Second, "the website is starting"))
	}
	o.start()
	w.change(5*time.Minute, 20*time.Second)
	w.site("web", 1)
	w.wait(time.Minute)
	w.ReleaseWatches("websites")
	w.wait(time.Minute)
}

func listForbidden(w *world) {
	w.forbid("configmaps")
	w.operator("website-operator-0").start()
	w.change(10*time.Minute, 20*time.Second)
}

func serverUnreachable(w *world) {
	w.operator("website-operator-0").start()
	w.change(10*time.Minute, 20*time.Second)
	w.Hook(func(*http.Request, func() *http.Response) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	})
	w.Break("websites", false)
	w.Break("configmaps", false)
	w.wait(20 * time.Minute)
}

func twoLeaders(w *world) {
	w.operator("website-operator-0").start()
	other := w.operator("website-operator-1")
	other.lease.Namespace = "default"
	other.start()
	w.change(10*time.Minute, 20*time.Second)
}

// certificateExpires has a certificate that is not renewed.
func certificateExpires(w *world) {
	o := w.operator("website-operator-0")
	o.certificateEnd = time.Now().Add(5*24*time.Hour + 10*time.Minute)
	o.start()
	w.wait(30 * time.Minute)
}

// webhookFails has a webhook whose every fourth review fails.
func webhookFails(w *world) {
	o := w.operator("website-operator-0")
	reviews := 0
	o.review = func() string {
		if reviews++; reviews%4 == 0 {
			return "timeout"
		}
		return "rejected"
	}
	o.controller.Workers = 1
	o.start()
	for i := range 200 {
		w.site("site", i)
		w.wait(5 * time.Second)
	}
}

// memoryNearLimit replaces the Go memory limit, which all tests of this process share.
func memoryNearLimit(w *world) {
	w.operator("website-operator-0").start()
	w.wait(10 * time.Minute)
	w.replace("go_gc_gomemlimit_bytes", func(int) int { return 1 << 20 })
}

// processRestarts replaces the start time, which is that of this process.
func processRestarts(w *world) {
	w.operator("website-operator-0").start()
	w.wait(30 * time.Minute)
	w.replace("process_start_time_seconds", func(i int) int { return i / 24 })
}

// replace replaces the values of a metric in all scrapes.
func (w *world) replace(metric string, value func(i int) int) {
	w.t.Helper()
	line := regexp.MustCompile(`(?m)^` + metric + ` .*$`)
	for i, s := range w.scrapes {
		if !line.Match(s.text) {
			w.t.Fatalf("%s is missing in:\n%s", metric, s.text)
		}
		w.scrapes[i].text = line.ReplaceAll(s.text, fmt.Appendf(nil, "%s %d", metric, value(i)))
	}
}
