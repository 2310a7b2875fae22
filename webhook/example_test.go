package webhook_test

import (
	"context"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// validateHost rejects hosts that the program does not manage.
func validateHost(_ context.Context, request *webhook.Request[*networkingv1.Ingress]) error {
	var errs field.ErrorList
	for i, rule := range request.Object.Spec.Rules {
		if !strings.HasSuffix(rule.Host, ".example.com") {
			errs = append(errs, field.Invalid(field.NewPath("spec", "rules").Index(i).Child("host"), rule.Host, "must end with .example.com"))
		}
	}
	return errs.ToAggregate()
}

func options() webhook.HookConfig {
	return webhook.HookConfig{Name: "hosts.ingresses.example.com", Resources: []schema.GroupVersionResource{{Resource: "ingresses"}}}
}

func Example() {
	run := func(ctx context.Context, cluster *kube.Cluster, config webhook.HookConfig) error {
		server, err := webhook.New(webhook.Config{
			Cluster: cluster, Listen: ":9443", CertFile: "tls.crt", KeyFile: "tls.key",
			Hooks: []webhook.Hook{webhook.Validating(config, validateHost)},
		})
		if err != nil {
			return err
		}
		m, err := manager.New(manager.Config{Runnables: []manager.Runnable{{Runner: server, Group: manager.Servers}}})
		if err != nil {
			return err
		}
		return m.Run(ctx)
	}
	_ = run
}

// The configuration that registers a hook.
func ExampleServer_Configurations() {
	cluster, err := kube.Connect(&rest.Config{Host: "https://127.0.0.1:6443"})
	if err != nil {
		panic(err)
	}
	server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{webhook.Validating(options(), validateHost)}})
	if err != nil {
		panic(err)
	}
	objects, err := server.Configurations("shop-operator", "https://operator.shop.svc", nil)
	if err != nil {
		panic(err)
	}
	for _, obj := range objects {
		text, err := yaml.Marshal(obj)
		if err != nil {
			panic(err)
		}
		fmt.Print(string(text))
	}
	// Output:
	// apiVersion: admissionregistration.k8s.io/v1
	// kind: ValidatingWebhookConfiguration
	// metadata:
	//   name: shop-operator
	// webhooks:
	// - admissionReviewVersions:
	//   - v1
	//   clientConfig:
	//     service:
	//       name: operator
	//       namespace: shop
	//       path: /hosts.ingresses.example.com
	//       port: 443
	//   failurePolicy: Fail
	//   matchPolicy: Equivalent
	//   name: hosts.ingresses.example.com
	//   namespaceSelector: {}
	//   objectSelector: {}
	//   rules:
	//   - apiGroups:
	//     - networking.k8s.io
	//     apiVersions:
	//     - v1
	//     operations:
	//     - CREATE
	//     - UPDATE
	//     resources:
	//     - ingresses
	//     scope: '*'
	//   sideEffects: None
	//   timeoutSeconds: 10
}
