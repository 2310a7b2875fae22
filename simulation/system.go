package simulation

import (
	"context"
	"fmt"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

// createSystemObjects creates the objects that each API server creates when it starts, of its many roles those that
// users bind.
func createSystemObjects(ctx context.Context, cluster *kube.Cluster) error {
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "kube-apiserver", FieldValidation: "Strict"})
	if err != nil {
		return err
	}
	documents, err := split("system objects", []byte(systemObjects))
	if err != nil {
		return err
	}
	for _, d := range documents {
		objects, err := d.decode()
		if err != nil {
			return err
		}
		for _, obj := range objects {
			if obj.GetKind() == "ConfigMap" {
				obj.Object["data"] = map[string]any{"client-ca-file": controllers.RootCA}
			}
			if _, err := client.Create(ctx, c, obj); err != nil {
				return fmt.Errorf("%s: %w", d.source, err)
			}
		}
	}
	return nil
}

const systemObjects = `
apiVersion: v1
kind: Service
metadata: {namespace: default, name: kubernetes, labels: {component: apiserver, provider: kubernetes}}
spec:
  clusterIP: 10.96.0.1
  ipFamilyPolicy: SingleStack
  ports: [{name: https, port: 443, protocol: TCP, targetPort: 6443}]
  sessionAffinity: None
  type: ClusterIP
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: kube-system, name: extension-apiserver-authentication}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: system-node-critical}
description: Used for system critical pods that must not be moved from their current node.
preemptionPolicy: PreemptLowerPriority
value: 2000001000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: system-cluster-critical}
description: Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.
preemptionPolicy: PreemptLowerPriority
value: 2000000000
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-admin
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
- {nonResourceURLs: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: admin
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {rbac.authorization.k8s.io/aggregate-to-admin: "true"}}]
rules: null
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: edit
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults, rbac.authorization.k8s.io/aggregate-to-admin: "true"}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}]
rules: null
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: view
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults, rbac.authorization.k8s.io/aggregate-to-edit: "true"}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}}]
rules: null
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: system:auth-delegator
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
rules:
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: system:basic-user
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
rules:
- apiGroups: [authorization.k8s.io]
  resources: [selfsubjectaccessreviews, selfsubjectrulesreviews]
  verbs: [create]
- {apiGroups: [authentication.k8s.io], resources: [selfsubjectreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: system:basic-user
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:basic-user"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: cluster-admin
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:masters"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  namespace: kube-system
  name: extension-apiserver-authentication-reader
  annotations: {rbac.authorization.kubernetes.io/autoupdate: "true"}
  labels: {kubernetes.io/bootstrapping: rbac-defaults}
rules:
- apiGroups: [""]
  resourceNames: [extension-apiserver-authentication]
  resources: [configmaps]
  verbs: [get, list, watch]
`
