package apiserver

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// databaseMaker makes the custom resources of a cluster that has n of them, as podMaker
// makes Pods.
type databaseMaker struct {
	seed uint64
	n    int
}

func (m *databaseMaker) database(i int) *database.Database {
	r := rand.New(rand.NewPCG(m.seed+3, uint64(i)))
	namespace := namespaceOf(r, i, m.n, 1)
	team := teams()[r.IntN(len(teams()))]
	engine := []string{"postgres", "mysql", "redis", "mongodb"}[r.IntN(4)]
	name := fmt.Sprintf("%s-%s-%s", team, engine, letters(r, 5))
	created := clusterStart().Add(time.Duration(r.IntN(200*24*3600)) * time.Second)
	version := fmt.Sprintf("%d.%d", 5+r.IntN(12), r.IntN(9))
	generation := int64(1 + r.IntN(30))
	d := &database.Database{
		TypeMeta: metav1.TypeMeta{APIVersion: database.GroupVersion().String(), Kind: "Database"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID(uid(r, i)), Generation: generation,
			CreationTimestamp: metav1.NewTime(created),
			Labels: map[string]string{
				"app.kubernetes.io/name": engine, "app.kubernetes.io/managed-by": "helm",
				"team": team,
			},
			Annotations: map[string]string{
				"meta.helm.sh/release-name":      name,
				"meta.helm.sh/release-namespace": namespace,
			},
			Finalizers: []string{"bench.evenkeel.dev/backup"},
		},
		Spec: database.Spec{
			Engine: engine, Version: version, Replicas: 1 + r.Int32N(3),
			Image: fmt.Sprintf("registry.example.com/databases/%s:%s-%d", engine, version, r.IntN(30)),
			Storage: database.Storage{
				ClassName: []string{"fast-ssd", "standard"}[r.IntN(2)],
				Size:      fmt.Sprintf("%dGi", 10*(1+r.IntN(50))),
			},
			Resources: database.Resources{Requests: map[string]string{
				"cpu":    fmt.Sprintf("%dm", 100*(1+r.IntN(20))),
				"memory": fmt.Sprintf("%dMi", 256*(1+r.IntN(16))),
			}, Limits: map[string]string{"memory": fmt.Sprintf("%dMi", 256*(16+r.IntN(16)))}},
			Parameters: parameters(r),
			Listeners: []database.Listener{{
				Name: engine, Port: 3000 + r.Int32N(4000), Protocol: "TCP",
				TLSSecret: name + "-tls",
			}, {Name: "metrics", Port: 9000 + r.Int32N(200), Protocol: "TCP"}},
			Backup: &database.Backup{
				Schedule: fmt.Sprintf("%d %d * * *", r.IntN(60), r.IntN(24)),
				Bucket:   "s3://backups-" + team + "/" + name, Retention: 7 * (1 + r.Int32N(8)),
			},
		},
	}
	m.status(d, r, created)
	d.ManagedFields = databaseFields(d, created)
	return d
}

func parameters(r *rand.Rand) map[string]string {
	names := strings.Fields("max_connections shared_buffers work_mem wal_level checkpoint_timeout " +
		"effective_cache_size log_min_duration random_page_cost autovacuum_naptime statement_timeout")
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	result := make(map[string]string)
	for _, name := range names[:1+r.IntN(4)] {
		result[name] = fmt.Sprint(r.IntN(5000))
	}
	return result
}

func (m *databaseMaker) status(d *database.Database, r *rand.Rand, created time.Time) {
	ready, phase := metav1.ConditionTrue, "Ready"
	if r.IntN(10) == 0 {
		ready, phase = metav1.ConditionFalse, "Progressing"
	}
	last := metav1.NewTime(created.Add(time.Duration(r.IntN(30*24)) * time.Hour))
	d.Status = database.Status{
		Phase: phase, ObservedGeneration: d.Generation, ReadyReplicas: d.Spec.Replicas,
		Primary: d.Name + "-0", LastBackup: &last,
	}
	for i := range d.Spec.Replicas {
		d.Status.Endpoints = append(d.Status.Endpoints, database.Endpoint{
			Name: fmt.Sprintf("%s-%d", d.Name, i), Host: fmt.Sprintf("10.%d.%d.%d", r.IntN(200), r.IntN(256),
				1+r.IntN(254)), Port: d.Spec.Listeners[0].Port, Ready: true,
		})
	}
	reasons := map[string][2]string{
		"Ready": {"AllReplicasReady", fmt.Sprintf("%d of %d replicas are ready", d.Spec.Replicas,
			d.Spec.Replicas)},
		"Progressing": {"RolloutComplete", "the replicas run version " + d.Spec.Version},
		"BackedUp":    {"BackupSucceeded", "the last backup was written to " + d.Spec.Backup.Bucket},
	}
	for _, name := range []string{"Ready", "Progressing", "BackedUp"} {
		value := metav1.ConditionTrue
		if name == "Ready" {
			value = ready
		}
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{
			Type: name, Status: value, ObservedGeneration: d.Generation, Reason: reasons[name][0],
			Message:            reasons[name][1],
			LastTransitionTime: metav1.NewTime(created.Add(time.Duration(r.IntN(600)) * time.Second)),
		})
	}
}

// databaseFields is who set what: helm the specification, the operator the status.
func databaseFields(d *database.Database, created time.Time) []metav1.ManagedFieldsEntry {
	names := make([]string, 0, len(d.Spec.Parameters))
	for name := range d.Spec.Parameters {
		names = append(names, `"f:`+name+`":{}`)
	}
	sort.Strings(names)
	spec :=
		`{"f:metadata":{"f:annotations":{".":{},"f:meta.helm.sh/release-name":{},` +
			`"f:meta.helm.sh/release-namespace":{}},"f:labels":{".":{},` +
			`"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{".":{},` +
			`"f:backup":{".":{},` +
			`"f:bucket":{},"f:retention":{},"f:schedule":{}},"f:engine":{},"f:image":{},"f:listeners":{},` +
			`"f:parameters":{".":{},` + strings.Join(names, ",") +
			`},"f:replicas":{},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},` +
			`"f:cpu":{},"f:memory":{}}},` +
			`"f:storage":{".":{},"f:className":{},"f:size":{}},"f:version":{}}}`
	var status strings.Builder
	status.WriteString(`{"f:status":{".":{},"f:conditions":{".":{}`)
	for _, c := range d.Status.Conditions {
		status.WriteString(`,"k:{\"type\":\"` + c.Type +
			`\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:observedGeneration":{},"f:reason":{},` +
			`"f:status":{},"f:type":{}}`)
	}
	status.WriteString(
		`},"f:endpoints":{},"f:lastBackup":{},"f:observedGeneration":{},"f:phase":{},"f:primary":{},` +
			`"f:readyReplicas":{}}}`)
	entries := []metav1.ManagedFieldsEntry{
		managed("helm", "", created, spec),
		managed("database-operator", "status", created.Add(time.Minute), status.String()),
	}
	for i := range entries {
		entries[i].APIVersion = database.GroupVersion().String()
	}
	return entries
}

// changed is database i as event seq of a burst shows it: its status moved on.
func (m *databaseMaker) changed(i, burst, seq int) *database.Database {
	d := m.database(i)
	d.Annotations[probe.EventAnnotation] = probe.Mark(burst, seq)
	at := metav1.NewTime(clusterStart().Add(time.Duration(burst*1000000+seq) * time.Second))
	d.Status.LastBackup = &at
	d.Status.Conditions[2].LastTransitionTime = at
	return d
}
