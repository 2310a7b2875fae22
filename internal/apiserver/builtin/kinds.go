package builtin

import "github.com/evenkeel-go/evenkeel/internal/apiserver"

// Kinds returns all built-in kinds that have the rules of the real server.
func Kinds() []*apiserver.Kind {
	return append([]*apiserver.Kind{
		apiserver.ConfigMaps(), apiserver.Secrets(), apiserver.Namespaces(), apiserver.Leases(),
		Pods(), Deployments(), ReplicaSets(), StatefulSets(), DaemonSets(), Jobs(), Services(), PodDisruptionBudgets(),
	}, Events()...)
}
