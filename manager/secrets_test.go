package manager_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
)

// output collects what a program writes.
type output struct{ testlog.Buffer }

// Event implements controller.EventRecorder.
func (o *output) Event(regarding corev1.ObjectReference, _, reason, _, note string) {
	fmt.Fprintln(o, "event", reason, regarding.Name, note)
}

// A controller and another client change the same field of a Secret in turn. The values are in no log, Event, problem or
// explanation, and not in /debug.
func TestValuesOfSecretsAreHidden(t *testing.T) {
	t.Parallel()
	testHidden(t, apiserver.Secrets(), "Secret", func(obj *corev1.Secret) string { return string(obj.Data["password"]) })
}

// The same for a field that the user names.
func TestValuesOfHiddenFields(t *testing.T) {
	t.Parallel()
	testHidden(t, apiserver.ConfigMaps(), "ConfigMap", func(obj *corev1.ConfigMap) string {
		text, err := base64.StdEncoding.DecodeString(obj.Data["password"])
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}, "data.password")
}

func testHidden[T kube.Object](t *testing.T, served *apiserver.Kind, kind string, password func(T) string, fields ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const mine, theirs = "hunter2", "swordfish"
		resource := strings.ToLower(kind) + "s"
		key := kube.Key{Namespace: "shop", Name: "db"}
		server := apitest.New(served)
		encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
		server.Apply(resource, key, "kubectl", fmt.Sprintf(
			`{"apiVersion":"v1","kind":%q,"metadata":{"namespace":"shop","name":"db"},"data":{"password":%q}}`, kind, encode(theirs)))
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.HideFields(schema.GroupKind{Kind: kind}, fields...); err != nil {
			t.Fatal(err)
		}
		client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		var out output
		logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ctrl, err := controller.New(controller.Config[T]{
			Name: "passwords", Cluster: cluster, Logger: logger, Events: &out, ResyncInterval: -1,
			Handler: func(ctx context.Context, obj T) error {
				if password(obj) == mine {
					return nil
				}
				patch := fmt.Sprintf(`{"data":{"password":%q}}`, encode(mine))
				return client.Patch(types.MergePatchType).Namespace("shop").Resource(resource).Name("db").Body([]byte(patch)).Do(ctx).Error()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Config{Runnables: []manager.Runnable{{Runner: ctrl}}, IgnoreSignals: true, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		for range 40 {
			time.Sleep(3 * time.Second)
			server.Edit(resource, key, "intruder", func(obj map[string]any) bool {
				obj["data"] = map[string]any{"password": encode(theirs)}
				return true
			})
		}
		synctest.Wait()
		problems := ctrl.Problems()
		if !slices.ContainsFunc(problems, func(p controller.Problem) bool { return p.Type == controller.ProblemHotLoop }) {
			t.Errorf("no hot loop is reported: %v", problems)
		}
		for _, name := range []string{"", key.String()} {
			state, err := ctrl.Debug(name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(state)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, string(text))
		}
		fmt.Fprintln(&out, problems, ctrl.Explain(key))
		stop()
		text := out.String()
		for _, secret := range []string{mine, theirs, encode(mine), encode(theirs)} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("the output contains %q: ...%s", secret, text[max(0, i-200):i+20])
			}
		}
		for _, want := range []string{"event HotLoop db", "data.password", "(hidden)", "intruder"} {
			if !strings.Contains(text, want) {
				t.Errorf("the output lacks %q:\n%s", want, text)
			}
		}
	})
}
