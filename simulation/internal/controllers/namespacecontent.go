package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// RootCA is the certificate of the cluster in the ConfigMap kube-root-ca.crt. Nobody has its key.
const RootCA = `-----BEGIN CERTIFICATE-----
MIIBXTCCAQOgAwIBAgIBATAKBggqhkjOPQQDAjAVMRMwEQYDVQQDEwpzaW11bGF0
aW9uMCAXDTAwMDEwMTAwMDAwMFoYDzI5OTkwMTAxMDAwMDAwWjAVMRMwEQYDVQQD
EwpzaW11bGF0aW9uMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaNMsE5kburE3
P+PLWoC3GRFTN/xUr+NELAmaLxMKsLyE9dxaXIree1PToRB48m45vWargWbCDST+
SZjLRsNRP6NCMEAwDgYDVR0PAQH/BAQDAgKEMA8GA1UdEwEB/wQFMAMBAf8wHQYD
VR0OBBYEFMSVRv89IK+JxZJ/9MuAuuEFGh3nMAoGCCqGSM49BAMCA0gAMEUCIQD5
XWkzzF8i8UyB6qMnhwayElvEB8rnehpgbDF6QjjahgIgTxxF2vh39+ZXviq7EfJv
sIe4dz2QWqSCMn7rrD+n9+Q=
-----END CERTIFICATE-----
`

const (
	accountName = "default"
	rootCAName  = "kube-root-ca.crt"
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints " +
		"such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across " +
		"distributions of Kubernetes clusters."
)

// namespaceContent models the two controllers that give each namespace its service account and the certificate of the
// cluster, and give them again when they are deleted.
type namespaceContent struct {
	*Manager
	accounts, certificates *requester
}

func (n *namespaceContent) String() string { return "namespace-content-controllers" }

func (n *namespaceContent) observe(add func(key string, due time.Time), now time.Time, c apiserver.Change) {
	obj := c.Object
	if obj == nil {
		obj = c.Old
	}
	switch obj := obj.(type) {
	case *corev1.Namespace:
		if c.Object != nil {
			add(obj.Name, now)
		}
	case *corev1.ServiceAccount:
		if c.Object == nil && obj.Name == accountName {
			add(obj.Namespace, now)
		}
	case *corev1.ConfigMap:
		if obj.Name == rootCAName {
			add(obj.Namespace, now)
		}
	}
}

func (n *namespaceContent) sync(ctx context.Context, key string) (time.Time, error) {
	namespace, _ := get[*corev1.Namespace](n.Manager, schema.GroupResource{Resource: "namespaces"}, "", key)
	if namespace == nil || namespace.Status.Phase == corev1.NamespaceTerminating {
		return time.Time{}, nil
	}
	accounts, configs := schema.GroupResource{Resource: "serviceaccounts"}, schema.GroupResource{Resource: "configmaps"}
	account, k := get[*corev1.ServiceAccount](n.Manager, accounts, key, accountName)
	if account == nil && k != nil {
		account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key, Name: accountName}}
		if err := n.accounts.create(ctx, k, account); err != nil && !apierrors.IsAlreadyExists(err) {
			return time.Time{}, err
		}
	}
	config, k := get[*corev1.ConfigMap](n.Manager, configs, key, rootCAName)
	data := map[string]string{"ca.crt": RootCA}
	switch {
	case k == nil:
		return time.Time{}, nil
	case config == nil:
		config = &corev1.ConfigMap{Data: data, ObjectMeta: metav1.ObjectMeta{
			Namespace: key, Name: rootCAName, Annotations: map[string]string{"kubernetes.io/description": description},
		}}
		return time.Time{}, n.certificates.create(ctx, k, config)
	case config.Data["ca.crt"] == RootCA && len(config.Data) == 1:
		return time.Time{}, nil
	}
	config = config.DeepCopy()
	config.Data = data
	return time.Time{}, n.certificates.update(ctx, k, config)
}

// FillNamespaces gives the namespaces of a server the objects that the controllers of a Manager would give them first.
func FillNamespaces(ctx context.Context, server *apiserver.Server) error {
	m := New(Config{Server: server})
	m.load()
	for _, namespace := range m.list(schema.GroupResource{Resource: "namespaces"}, "") {
		if _, err := m.controllers[contentIndex].sync(ctx, namespace.GetName()); err != nil {
			return fmt.Errorf("fill namespace %s: %w", namespace.GetName(), err)
		}
	}
	return nil
}
