package manager

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestLogLevelsSet(t *testing.T) {
	t.Parallel()
	var levels LogLevels
	for _, step := range []struct{ text, want, err string }{
		{"webapp=debug", "info,webapp=debug", ""},
		{"warn", "warn,webapp=debug", ""},
		{" Error , b=INFO+1,a=debug-4", "error,a=debug-4,b=info+1,webapp=debug", ""},
		{"a=,b=,unknown=", "error,webapp=debug", ""},
		{"debug,webapp=loud,=info,,x", "error,webapp=debug", `"webapp=loud": slog: level string "loud"`},
		{"=", "error,webapp=debug", `"=" has no name before =`},
		{"", "error,webapp=debug", "unknown name"},
		{"a=b=debug", "error,webapp=debug", `level string "b=debug"`},
		{"debug-99999999999999999999", "error,webapp=debug", "out of range"},
	} {
		err := levels.Set(step.text)
		if step.err != "" {
			expectError(t, err, step.err)
		} else if err != nil {
			t.Errorf("%q: %v", step.text, err)
		}
		if got := levels.String(); got != step.want {
			t.Errorf("after %q the levels are %q, want %q", step.text, got, step.want)
		}
		var second LogLevels
		if err := second.Set(levels.String()); err != nil || second.String() != levels.String() {
			t.Errorf("%q is not a text for Set: %q, %v", levels.String(), second.String(), err)
		}
	}
	expectError(t, levels.Set("loud,=info"), `"loud"`, `"=info" has no name`)
}

func TestLogLevelsServeHTTP(t *testing.T) {
	t.Parallel()
	var levels LogLevels
	for _, step := range []struct {
		method, body string
		status       int
		want         string
	}{
		{http.MethodGet, "", http.StatusOK, "info\n"},
		{http.MethodPut, "warn,webapp=debug\n", http.StatusOK, "warn,webapp=debug\n"},
		{http.MethodPost, "webapp=", http.StatusOK, "warn\n"},
		{http.MethodPut, "loud", http.StatusBadRequest, `"loud"`},
		{http.MethodPut, strings.Repeat("a=debug,", 1<<16), http.StatusBadRequest, "too large"},
		{http.MethodDelete, "", http.StatusMethodNotAllowed, "GET, HEAD, POST and PUT"},
		{http.MethodGet, "error", http.StatusOK, "warn\n"},
	} {
		response := httptest.NewRecorder()
		levels.ServeHTTP(response, httptest.NewRequest(step.method, "/log-levels", strings.NewReader(step.body)))
		if response.Code != step.status || !strings.Contains(response.Body.String(), step.want) {
			t.Errorf("%s %.20s: %d %s, want %d %s", step.method, step.body, response.Code, response.Body, step.status, step.want)
		}
	}
}

// A logger has the level of the last of its names that has one, also if the level is set later.
func TestLogLevelsOfLoggers(t *testing.T) {
	t.Parallel()
	o := Options{LogFormat: "json"}
	logger := o.loggerTo(&bytes.Buffer{})
	loggers := map[string]*slog.Logger{
		"plain":    logger,
		"webapp":   logger.With("controller", "webapp"),
		"informer": logger.With("a", "b", "controller", "webapp").With("informer", "pods").WithGroup("g").With("c", "d"),
		"group":    logger.WithGroup("g").With("controller", "webapp"),
		"other":    logger.With("controller", "other").WithGroup(""),
		"key":      logger.With("name", "webapp"),
	}
	for _, step := range []struct{ text, debug string }{
		{"info", ""},
		{"webapp=debug", "informer webapp"},
		{"pods=info", "webapp"},
		{"pods=debug,webapp=", "informer"},
		{"debug,webapp=error,pods=", "group key other plain"},
	} {
		if err := o.LogLevels.Set(step.text); err != nil {
			t.Fatal(err)
		}
		var debug []string
		for _, name := range []string{"group", "informer", "key", "other", "plain", "webapp"} {
			if loggers[name].Enabled(t.Context(), slog.LevelDebug) {
				debug = append(debug, name)
			}
		}
		if got := strings.Join(debug, " "); got != step.debug {
			t.Errorf("after %q these loggers write debug: %q, want %q", step.text, got, step.debug)
		}
	}
}

func TestLogLevelsConcurrently(t *testing.T) {
	t.Parallel()
	var o Options
	logger := o.loggerTo(&testlog.Buffer{})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 100 {
				if err := o.LogLevels.Set(fmt.Sprintf("%d=debug", i)); err != nil {
					t.Error(err)
				}
				logger.With("controller", fmt.Sprint(i)).Debug("x")
			}
		})
	}
	group.Wait()
	if got := o.LogLevels.String(); got != "info,0=debug,1=debug,2=debug,3=debug,4=debug,5=debug,6=debug,7=debug" {
		t.Errorf("a level was lost: %s", got)
	}
}

// The level of one of two controllers changes while they run.
func TestLogLevelOfRunningController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := apitest.New(apiserver.ConfigMaps())
		cluster, err := kube.Connect(server.Config("operator"))
		if err != nil {
			t.Fatal(err)
		}
		var logs testlog.Buffer
		o := Options{LogFormat: "text"}
		logger := o.loggerTo(&logs)
		var runnables []Runnable
		for _, name := range []string{"webapp", "other"} {
			ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
				Name: name, Cluster: cluster, Logger: logger, ResyncInterval: -1,
				Handler: func(ctx context.Context, obj *corev1.ConfigMap) error {
					controller.LoggerFrom(ctx).DebugContext(ctx, "handles", "object", obj)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			runnables = append(runnables, Runnable{Runner: ctrl})
		}
		m, err := New(Config{Runnables: runnables, IgnoreSignals: true, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, m.Run)
		handle := func(name string) string {
			before := len(logs.String())
			server.Apply("configmaps", kube.Key{Namespace: "shop", Name: name}, "kubectl",
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":%q},"data":{"a":"content"}}`, name))
			pass(time.Minute)
			return logs.String()[before:]
		}
		pass(time.Minute)
		if got := handle("one"); strings.Contains(got, "handles") {
			t.Errorf("at info level: %s", got)
		}
		if err := o.LogLevels.Set("webapp=debug"); err != nil {
			t.Fatal(err)
		}
		got := handle("two")
		if !strings.Contains(got, "controller=webapp") || !strings.Contains(got, "object=shop/two") ||
			strings.Contains(got, "controller=other") || strings.Contains(got, "content") {
			t.Errorf("with debug level for webapp: %s", got)
		}
		if err := o.LogLevels.Set("webapp="); err != nil {
			t.Fatal(err)
		}
		if got := handle("three"); strings.Contains(got, "handles") {
			t.Errorf("at info level again: %s", got)
		}
	})
}

// The content of objects, and attributes that the program names, are not written.
func TestLoggerHidesSecrets(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "key", Annotations: map[string]string{"last": password}}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"p": []byte(password)}, StringData: map[string]string{"p": password}}
	type nested struct {
		Text    string
		Secrets map[string][]*corev1.Secret
		Next    *nested
	}
	type stringer struct {
		metav1.Time // has the method String
		Secret      corev1.Secret
	}
	for name, tc := range map[string]struct {
		attr any // a value, or a slog.Attr
		want string
	}{
		"pointer":                 {secret, "shop/key"},
		"nil":                     {(*corev1.Secret)(nil), "nil"},
		"without namespace":       {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: secret.Data}, "key"},
		"struct":                  {*secret, "hidden"},
		"list":                    {&corev1.SecretList{Items: []corev1.Secret{*secret}}, "hidden"},
		"list without &":          {corev1.SecretList{Items: []corev1.Secret{*secret}}, "hidden"},
		"slice":                   {[]*corev1.Secret{secret}, "hidden"},
		"array in a map":          {map[string][1]corev1.Secret{"a": {*secret}}, "hidden"},
		"unstructured":            {&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "key"}, "data": password}}, "key"},
		"unstructured list":       {&unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{"data": password}}}}, "hidden"},
		"apply configuration":     {applycorev1.Secret("key", "shop").WithData(secret.Data), "hidden"},
		"data":                    {secret.Data, "hidden"},
		"metadata":                {&secret.ObjectMeta, "shop/key"},
		"nested":                  {nested{Secrets: map[string][]*corev1.Secret{"a": {secret}}}, "hidden"},
		"stringer":                {stringer{Secret: *secret}, "hidden"},
		"group":                   {slog.Group("g", "password", password, "secret", secret), "shop/key"},
		"named":                   {slog.String("Password", password), "hidden"},
		"named number":            {slog.Any("token", []string{password}), "hidden"},
		"objects by interface":    {[]runtime.Object{secret}, "hidden"},
		"values of any type":      {[]any{1, []any{secret}}, "hidden"},
		"map of any type":         {map[string]any{"a": map[string]any{"b": *secret}}, "hidden"},
		"field of interface type": {struct{ Obj runtime.Object }{secret}, "hidden"},
		"pointer to interface":    {&[]any{&struct{ A any }{secret.Data}}, "hidden"},
		"content of unstructured": {map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": password}, "hidden"},
		"numbers of any type":     {map[string]any{"address": []any{"10.0.0.1", nil, 7}}, "10.0.0.1"},
		"named group":             {slog.Group("token", "value", password, "inner", slog.GroupValue(slog.Any("x", password))), "hidden"},
		"not secret":              {slog.Any("address", []corev1.NodeAddress{{Address: "10.0.0.1"}}), "10.0.0.1"},
		"error":                   {errors.New("not found"), "not found"},
	} {
		for _, format := range []string{"text", "json"} {
			for _, with := range []bool{false, true} {
				var out bytes.Buffer
				o := Options{LogFormat: format, LogHide: []string{"password", "TOKEN"}}
				logger := o.loggerTo(&out)
				attr, ok := tc.attr.(slog.Attr)
				if !ok {
					attr = slog.Any("value", tc.attr)
				}
				if with {
					logger.With(attr).Info("x")
				} else {
					logger.Info("x", attr)
				}
				got := out.String()
				if !strings.Contains(got, tc.want) || strings.Contains(got, password) ||
					strings.Contains(got, base64.StdEncoding.EncodeToString([]byte(password))) {
					t.Errorf("%s, %s, with %t: %s", name, format, with, got)
				}
			}
		}
	}
}

// klog's logger is global, so this test is not parallel.
func TestKlogAndLogr(t *testing.T) { //nolint:paralleltest // see above
	var out bytes.Buffer
	o := Options{LogFormat: "text"}
	logger := o.loggerTo(&out)
	klog.SetSlogLogger(logger.With("library", "klog"))
	t.Cleanup(klog.ClearLogger)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "key"}, Data: map[string][]byte{"p": []byte("hunter2")}}
	ctx := klog.NewContext(t.Context(), logr.FromSlogHandler(logger.With("controller", "webapp").Handler()))
	write := func() string {
		out.Reset()
		klog.InfoS("structured", "secret", secret)
		klog.ErrorS(errBroken, "failed")
		klog.Warningf("formatted %d", 1)
		klog.Background().V(4).Info("background")
		klog.FromContext(ctx).V(4).Info("handler", "secret", secret)
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("the logs contain a secret:\n%s", &out)
		}
		return out.String()
	}
	for _, step := range []struct{ levels, want string }{
		{"info", "structured failed formatted"},
		{"webapp=debug,klog=error", "failed handler"},
		{"klog=debug,webapp=", "structured failed formatted background"},
	} {
		if err := o.LogLevels.Set(step.levels); err != nil {
			t.Fatal(err)
		}
		text := write()
		var got []string
		for _, message := range []string{"structured", "failed", "formatted", "background", "handler"} {
			if strings.Contains(text, message) {
				got = append(got, message)
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("with %s: got %v, want %s:\n%s", step.levels, got, step.want, text)
		}
	}
}
