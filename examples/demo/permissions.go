package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/kube"
)

// grant creates the operator's permissions: those of config/rbac.yaml, but only for the demo's namespace, so that they
// are deleted with it. The lease is omitted, because no other operator uses the namespace.
func (d *demo) grant(ctx context.Context) error {
	objects, err := manifest.Read(config.RBAC)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		switch obj.GetKind() {
		case "ClusterRole":
			obj.SetKind("Role")
		case "ClusterRoleBinding":
			obj.SetKind("RoleBinding")
			obj.Object["roleRef"] = map[string]any{
				"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
				"name": obj.GetName(),
			}
			obj.Object["subjects"] = []any{map[string]any{
				"kind": "ServiceAccount", "name": operator.Name,
				"namespace": d.namespace,
			}}
		default:
			continue
		}
		obj.SetNamespace(d.namespace)
		if err := manifest.ApplyObject(ctx, d.cluster, obj); err != nil {
			return err
		}
	}
	return nil
}

// asOperator connects as the service account of grant, so that the operator in the demo has only the permissions of
// config/rbac.yaml. It impersonates the account, which needs only its name.
func (d *demo) asOperator() (*kube.Cluster, error) {
	c := d.cluster.RESTConfig()
	c.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, operator.Name),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
	}
	cluster, err := kube.Connect(c, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	cluster.SetLogger(d.cluster.Logger())
	return cluster, nil
}
