package apiserver

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// shapes is how many different workloads there are. A cluster has many, so that a
// dictionary of the first objects does not fit all of them.
const shapes = 40

// shape is what the Pods of one workload have in common.
type shape struct {
	app        string
	team       string
	containers []corev1.Container // the application first
	imageIDs   []string           // by container
	volumes    []corev1.Volume
	account    string
	annotated  map[string]string
	// Both have placeholders for what differs from Pod to Pod.
	managerFields, kubeletFields string
}

func teams() []string {
	return strings.Fields("payments checkout search catalog identity logistics platform analytics messaging media " +
		"pricing fraud")
}

// newShapes makes the workloads of seed.
func newShapes(seed uint64) []shape {
	roles := strings.Fields("api worker gateway indexer scheduler consumer frontend exporter proxy sync")
	result := make([]shape, shapes)
	for i := range result {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		team := teams()[r.IntN(len(teams()))]
		app := team + "-" + roles[(i+r.IntN(3))%len(roles)]
		if i%3 == 0 {
			app += "-" + letters(r, 3)
		}
		s := shape{app: app, team: team, account: app}
		s.addContainer(r, app, 1+r.IntN(3))
		if i%3 == 1 { // many have a sidecar
			s.addContainer(r, []string{"istio-proxy", "log-shipper", "vault-agent", "metrics-exporter"}[r.IntN(4)],
				r.IntN(2))
		}
		s.addVolumes(r)
		s.annotated = map[string]string{
			"prometheus.io/port":   fmt.Sprint(s.containers[0].Ports[0].ContainerPort),
			"prometheus.io/scrape": "true",
		}
		s.managerFields = managerFields(&s)
		s.kubeletFields = kubeletFields()
		result[i] = s
	}
	return result
}

func (s *shape) addContainer(r *rand.Rand, name string, envs int) {
	registry := []string{"registry.example.com", "ghcr.io", "quay.io"}[r.IntN(3)]
	image := fmt.Sprintf("%s/%s/%s", registry, s.team, name)
	port := int32(8000 + r.IntN(2000))
	milli, mega := int64(50*(1+r.IntN(20))), int64(64*(1+r.IntN(32)))
	c := corev1.Container{
		Name:  name,
		Image: fmt.Sprintf("%s:v%d.%d.%d", image, r.IntN(9), r.IntN(40), r.IntN(20)),
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(milli, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(mega<<20, resource.BinarySI),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(2*mega<<20, resource.BinarySI)},
		},
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ImagePullPolicy:          corev1.PullIfNotPresent,
	}
	if len(s.containers) == 0 {
		if r.IntN(2) == 0 {
			c.ReadinessProbe = probeOf("/readyz", port, 5+r.Int32N(10))
		}
		if r.IntN(2) == 0 {
			c.LivenessProbe = probeOf("/healthz", port, 10+r.Int32N(20))
		}
		c.Args = []string{"--listen=:" + fmt.Sprint(port), "--workers=" + fmt.Sprint(1+r.IntN(16))}
	}
	variables := strings.Fields("LOG_LEVEL DATABASE_URL CACHE_ADDR QUEUE_TOPIC REGION FEATURE_FLAGS TRACE_ENDPOINT " +
		"HTTP_TIMEOUT MAX_CONNS SENTRY_DSN TENANT BATCH_SIZE")
	r.Shuffle(len(variables), func(i, j int) { variables[i], variables[j] = variables[j], variables[i] })
	for i, variable := range variables[:min(envs, len(variables))] {
		env := corev1.EnvVar{Name: variable}
		switch i % 3 {
		case 0:
			env.Value = fmt.Sprintf("%s.%s.svc.cluster.local:%d", strings.ToLower(variable), s.team, 1024+r.IntN(9000))
		case 1:
			env.Value = fmt.Sprint(r.IntN(10000))
		default:
			env.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: s.app + "-secrets"},
				Key:                  strings.ToLower(variable),
			}}
		}
		c.Env = append(c.Env, env)
	}
	if len(s.containers) == 0 {
		c.Env = append(c.Env, corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
		}})
	}
	s.containers = append(s.containers, c)
	s.imageIDs = append(s.imageIDs, image+"@sha256:"+hexDigits(r, 64))
}

func probeOf(path string, port, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP,
		}},
		TimeoutSeconds: 1, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func (s *shape) addVolumes(r *rand.Rand) {
	mode := int32(420)
	s.volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.app + "-config-" + letters(r, 8)},
			DefaultMode:          &mode,
		}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	mounts := []corev1.VolumeMount{
		{Name: "config", ReadOnly: true, MountPath: "/etc/" + s.app},
		{Name: "tmp", MountPath: "/tmp"},
	}
	if r.IntN(4) == 0 {
		s.volumes = append(s.volumes, corev1.Volume{Name: "certs", VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: s.app + "-tls", DefaultMode: &mode},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: "certs", ReadOnly: true, MountPath: "/var/run/certs"})
	}
	s.containers[0].VolumeMounts = mounts
}

// tokenVolume is the volume that the API server adds to each Pod, with a random name.
func tokenVolume(name string) corev1.Volume {
	mode, seconds := int32(420), int64(3607)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

// nameLetters are the letters in names that Kubernetes generates.
const nameLetters = "bcdfghjklmnpqrstvwxz2456789"

func letters(r *rand.Rand, n int) string { return pick(r, n, nameLetters) }

// letterPair is another one for each n below 729, so that of a million Pods no two of one owner
// have the same name.
func letterPair(n int) string {
	return string(nameLetters[n/len(nameLetters)%len(nameLetters)]) + string(nameLetters[n%len(nameLetters)])
}

func hexDigits(r *rand.Rand, n int) string {
	return pick(r, n, "0123456789abcdef")
}

func pick(r *rand.Rand, n int, from string) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = from[r.IntN(len(from))]
	}
	return string(text)
}

// uid returns a UID that contains the object's number, for handlers that count.
func uid(r *rand.Rand, number int) string {
	h := hexDigits(r, 24) + probe.NumberDigits(number)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}
