package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandlesSelectedAndEnqueuedConfigMaps(t *testing.T) {
	exampletest.InMemory(t, simulation.Config{})
	namespace := exampletest.Namespace(t)
	selected := map[string]string{"example": "config"}
	exampletest.CreateConfigMap(t, namespace, "watched", selected)
	exampletest.CreateConfigMap(t, namespace, "ignored", nil)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := exampletest.Core(t).Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a Service: %v", err)
	}

	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--namespace", namespace}, out)
	})
	out.Wait(t, `msg=handled controller=config-example run.key=`+namespace+`/watched`)
	out.Wait(t, `causes="func: triggered (clock)"`)
	exampletest.CreateConfigMap(t, namespace, "added", selected)
	out.Wait(t, `msg="handled a ConfigMap" controller=config-example run.key=`+namespace+`/added`)
	stop()
	if text := out.String(); strings.Contains(text, "services=0") {
		t.Errorf("the handler was called before the Services were listed:\n%s", text)
	}
	if text := out.String(); strings.Contains(text, namespace+"/ignored") {
		t.Errorf("the ConfigMap without the label was handled:\n%s", text)
	}
}

// The example must set every field.
func TestSetsEveryFieldOfConfig(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if pair, ok := n.(*ast.KeyValueExpr); ok {
			if name, ok := pair.Key.(*ast.Ident); ok {
				set[name.Name] = true
			}
		}
		return true
	})
	for _, typ := range []reflect.Type{
		reflect.TypeFor[controller.Config[*corev1.ConfigMap]](), reflect.TypeFor[controller.QueueConfig](), reflect.TypeFor[controller.RunsConfig](),
		reflect.TypeFor[retry.Config](), reflect.TypeFor[retry.Policy](),
	} {
		for field := range typ.Fields() {
			if field.IsExported() && !set[field.Name] {
				t.Errorf("field %s of %s is not in the example: add it, with its purpose", field.Name, typ)
			}
		}
	}
}
