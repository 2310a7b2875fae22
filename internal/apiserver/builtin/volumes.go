package builtin

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkVolumes checks the volumes, and keeps the valid ones for the mounts.
func (p *podProblems) checkVolumes(path *field.Path) {
	p.volumes = map[string]corev1.VolumeSource{}
	claims := map[string]bool{} // that are created for ephemeral volumes
	for _, v := range p.spec.Volumes {
		if v.Ephemeral != nil && p.podName() != "" {
			claims[p.podName()+"-"+v.Name] = true
		}
	}
	for i, v := range p.spec.Volumes {
		path, before := path.Index(i), len(p.list)
		p.volume(&v, path)
		p.requiredLabel(path.Child("name"), v.Name)
		if _, exists := p.volumes[v.Name]; exists {
			p.add(field.Duplicate(path.Child("name"), v.Name))
		}
		if len(p.list) == before {
			p.volumes[v.Name] = v.VolumeSource
		}
		if claim := v.PersistentVolumeClaim; claim != nil && claims[claim.ClaimName] {
			p.invalid(path.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// podName returns the name of the Pod, or "" in a template.
func (p *podProblems) podName() string {
	if p.metadata == nil {
		return ""
	}
	return p.metadata.Name
}

// volume checks that a volume has one source, and the first one, in the order of the real server.
func (p *podProblems) volume(v *corev1.Volume, path *field.Path) {
	count := 0
	for _, source := range p.volumeSources(v) {
		if !source.exists {
			continue
		}
		if count++; count == 1 {
			if source.check != nil {
				source.check(path.Child(source.name))
			}
			continue
		}
		if source.name == "downwardAPI" {
			source.name = "downwarAPI" // as the real server writes it here
		}
		p.forbidden(path.Child(source.name), "may not specify more than 1 volume type")
	}
	if count == 0 {
		p.required(path, "must specify a volume type")
	}
}

// volumeSource is one of the fields of a volume. check is nil if the field is not checked.
type volumeSource struct {
	name   string
	exists bool
	check  func(*field.Path)
}

func (p *podProblems) volumeSources(v *corev1.Volume) []volumeSource {
	return []volumeSource{
		{"emptyDir", v.EmptyDir != nil, func(path *field.Path) { p.emptyDir(v.EmptyDir, path) }},
		{"hostPath", v.HostPath != nil, func(path *field.Path) { p.hostPath(v.HostPath, path) }},
		{"gitRepo", v.GitRepo != nil, func(path *field.Path) {
			p.nonEmpty(path.Child("repository"), v.GitRepo.Repository)
			p.descendingPath(path.Child("directory"), v.GitRepo.Directory)
		}},
		{"gcePersistentDisk", v.GCEPersistentDisk != nil, nil},
		{"awsElasticBlockStore", v.AWSElasticBlockStore != nil, nil},
		{"secret", v.Secret != nil, func(path *field.Path) {
			p.nonEmpty(path.Child("secretName"), v.Secret.SecretName)
			p.files(v.Secret.DefaultMode, v.Secret.Items, path)
		}},
		{"nfs", v.NFS != nil, func(path *field.Path) { p.nfs(v.NFS, path) }},
		{"iscsi", v.ISCSI != nil, nil},
		{"glusterfs", v.Glusterfs != nil, nil},
		{"flocker", v.Flocker != nil, nil},
		{"persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(path *field.Path) {
			p.nonEmpty(path.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
		}},
		{"rbd", v.RBD != nil, nil},
		{"cinder", v.Cinder != nil, nil},
		{"cephFS", v.CephFS != nil, nil},
		{"quobyte", v.Quobyte != nil, nil},
		{"downwardAPI", v.DownwardAPI != nil, func(path *field.Path) { p.downwardAPI(v.DownwardAPI, path) }},
		{"fc", v.FC != nil, nil},
		{"flexVolume", v.FlexVolume != nil, nil},
		{"configMap", v.ConfigMap != nil, func(path *field.Path) {
			p.nonEmpty(path.Child("name"), v.ConfigMap.Name)
			p.files(v.ConfigMap.DefaultMode, v.ConfigMap.Items, path)
		}},
		{"azureFile", v.AzureFile != nil, nil},
		{"vsphereVolume", v.VsphereVolume != nil, nil},
		{"photonPersistentDisk", v.PhotonPersistentDisk != nil, nil},
		{"portworxVolume", v.PortworxVolume != nil, nil},
		{"azureDisk", v.AzureDisk != nil, nil},
		{"storageos", v.StorageOS != nil, nil},
		{"projected", v.Projected != nil, func(path *field.Path) { p.projected(v.Projected, path) }},
		{"scaleIO", v.ScaleIO != nil, nil},
		{"csi", v.CSI != nil, func(path *field.Path) { p.csi(v.CSI, path) }},
		{"ephemeral", v.Ephemeral != nil, func(path *field.Path) { p.ephemeral(v, path) }},
		{"image", v.Image != nil, func(path *field.Path) { p.image(v.Image, path) }},
	}
}

func (p *podProblems) emptyDir(source *corev1.EmptyDirVolumeSource, path *field.Path) {
	if limit := source.SizeLimit; limit != nil && limit.Sign() < 0 {
		p.forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
}

func (p *podProblems) hostPath(source *corev1.HostPathVolumeSource, path *field.Path) {
	if p.nonEmpty(path.Child("path"), source.Path) {
		p.noBacksteps(path.Child("path"), source.Path)
		optionalOneOf(&p.problems, path.Child("type"), source.Type,
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev,
			corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
}

func (p *podProblems) nfs(source *corev1.NFSVolumeSource, path *field.Path) {
	p.nonEmpty(path.Child("server"), source.Server)
	p.nonEmpty(path.Child("path"), source.Path)
	if !strings.HasPrefix(source.Path, "/") {
		p.invalid(path.Child("path"), source.Path, "must be an absolute path")
	}
}

func (p *podProblems) downwardAPI(source *corev1.DownwardAPIVolumeSource, path *field.Path) {
	p.fileMode(path.Child("defaultMode"), source.DefaultMode)
	for i := range source.Items {
		p.downwardFile(&source.Items[i], path)
	}
}

func (p *podProblems) image(source *corev1.ImageVolumeSource, path *field.Path) {
	if p.metadata != nil {
		p.nonEmpty(path.Child("reference"), source.Reference)
	}
	p.imagePullPolicy(path.Child("pullPolicy"), source.PullPolicy)
}

// files checks the mode and the paths of the files of a Secret or ConfigMap.
func (p *problems) files(mode *int32, items []corev1.KeyToPath, path *field.Path) {
	p.fileMode(path.Child("defaultMode"), mode)
	p.keysToPaths(items, path.Child("items"))
}

func (p *problems) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		p.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (p *problems) keysToPaths(items []corev1.KeyToPath, path *field.Path) {
	for i, item := range items {
		path := path.Index(i)
		p.nonEmpty(path.Child("key"), item.Key)
		p.nonEmpty(path.Child("path"), item.Path)
		p.localPath(path.Child("path"), item.Path)
		p.fileMode(path.Child("mode"), item.Mode)
	}
}

func hasBacksteps(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

func (p *problems) noBacksteps(path *field.Path, name string) {
	if hasBacksteps(name) {
		p.invalid(path, name, "must not contain '..'")
	}
}

// descendingPath checks a relative path without "..".
func (p *problems) descendingPath(at *field.Path, name string) {
	if path.IsAbs(name) {
		p.invalid(at, name, "must be a relative path")
	}
	p.noBacksteps(at, name)
}

// localPath checks a path in a volume. Names that begin with two dots are reserved.
func (p *problems) localPath(at *field.Path, name string) {
	p.descendingPath(at, name)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		p.invalid(at, name, "must not start with '..'")
	}
}

func (p *podProblems) downwardFile(file *corev1.DownwardAPIVolumeFile, path *field.Path) {
	p.nonEmpty(path.Child("path"), file.Path)
	p.localPath(path.Child("path"), file.Path)
	switch {
	case file.FieldRef != nil:
		p.fieldRef(file.FieldRef, path.Child("fieldRef"), "metadata.annotations", "metadata.labels", "metadata.name",
			"metadata.namespace", "metadata.uid")
		if file.ResourceFieldRef != nil {
			p.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil:
		p.resourceFieldRef(file.ResourceFieldRef, path.Child("resourceFieldRef"), true)
	default:
		p.required(path, "one of fieldRef and resourceFieldRef is required")
	}
	p.fileMode(path.Child("mode"), file.Mode)
}

func (p *podProblems) projected(projected *corev1.ProjectedVolumeSource, path *field.Path) {
	p.fileMode(path.Child("defaultMode"), projected.DefaultMode)
	seen := map[string]bool{}
	unique := func(file, described string) {
		if file != "" && seen[file] {
			p.invalid(path, described, "conflicting duplicate paths")
		}
		seen[file] = true
	}
	items := func(name string, items []corev1.KeyToPath, path *field.Path) {
		p.nonEmpty(path.Child("name"), name)
		for i := range items {
			p.keysToPaths(items[i:i+1], path.Child("items"))
			unique(items[i].Path, name)
		}
	}
	for i, source := range projected.Sources {
		at, count := path.Child("sources").Index(i), 0
		if s := source.Secret; s != nil {
			count++
			items(s.Name, s.Items, at.Child("secret"))
		}
		if s := source.ConfigMap; s != nil {
			count++
			items(s.Name, s.Items, at.Child("configMap"))
		}
		if s := source.DownwardAPI; s != nil {
			count++
			for i := range s.Items {
				p.downwardFile(&s.Items[i], at.Child("downwardAPI"))
				unique(s.Items[i].Path, s.Items[i].Path)
			}
		}
		if s := source.ServiceAccountToken; s != nil {
			count++
			seconds := at.Child("serviceAccountToken", "expirationSeconds")
			if *s.ExpirationSeconds < 10*60 {
				p.invalid(seconds, *s.ExpirationSeconds, "may not specify a duration less than 10 minutes")
			}
			if *s.ExpirationSeconds > 1<<32 {
				p.invalid(seconds, *s.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds")
			}
			if p.nonEmpty(path.Child("path"), s.Path) {
				p.localPath(path.Child("path"), s.Path)
			}
		}
		if count > 1 {
			p.forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

func (p *podProblems) csi(csi *corev1.CSIVolumeSource, path *field.Path) {
	const maxDriverLength = 63
	if p.nonEmpty(path.Child("driver"), csi.Driver) {
		if len(csi.Driver) > maxDriverLength {
			p.add(field.TooLong(path.Child("driver"), "", maxDriverLength))
		}
		p.invalidFor(path.Child("driver"), csi.Driver, utilvalidation.IsDNS1123Subdomain(strings.ToLower(csi.Driver)))
	}
	if ref := csi.NodePublishSecretRef; ref != nil {
		if p.nonEmpty(path.Child("nodePublishSecretRef", "name"), ref.Name) {
			p.invalidFor(path.Child("name"), ref.Name, validation.NameIsDNSSubdomain(ref.Name, false))
		}
	}
}

func (p *podProblems) ephemeral(v *corev1.Volume, path *field.Path) {
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		p.required(path.Child("volumeClaimTemplate"), "")
	} else {
		metadata := path.Child("volumeClaimTemplate", "metadata")
		p.add(validation.ValidateAnnotations(template.Annotations, metadata.Child("annotations"))...)
		p.add(metavalidation.ValidateLabels(template.Labels, metadata.Child("labels"))...)
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"name", template.Name != ""},
			{"generateName", template.GenerateName != ""},
			{"namespace", template.Namespace != ""},
			{"ownerReferences", len(template.OwnerReferences) > 0},
			{"finalizers", len(template.Finalizers) > 0},
		} {
			if f.set {
				p.forbidden(metadata.Child(f.name), "cannot be set")
			}
		}
		p.claimSpec(&template.Spec, path.Child("volumeClaimTemplate", "spec"))
	}
	if name := p.podName(); name != "" && v.Name != "" {
		claim := name + "-" + v.Name
		for _, message := range validation.NameIsDNSSubdomain(claim, false) {
			p.invalid(path.Child("name"), v.Name, "PVC name \""+claim+"\": "+message)
		}
	}
}

// claimSpec checks the specification of a PersistentVolumeClaim, except for its data sources.
func (p *problems) claimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	if len(spec.AccessModes) == 0 {
		p.required(path.Child("accessModes"), "at least 1 access mode is required")
	}
	if spec.Selector != nil {
		p.selector(path.Child("selector"), spec.Selector)
	}
	exclusive, shared := false, false
	for _, mode := range spec.AccessModes {
		valid := oneOf(p, path.Child("accessModes"), mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		exclusive = exclusive || mode == corev1.ReadWriteOncePod
		shared = shared || valid && mode != corev1.ReadWriteOncePod
	}
	if exclusive && shared {
		p.forbidden(path.Child("accessModes"), "may not use ReadWriteOncePod with other access modes")
	}
	size := path.Child("resources").Key(string(corev1.ResourceStorage))
	if storage, exists := spec.Resources.Requests[corev1.ResourceStorage]; !exists {
		p.required(size, "")
	} else if storage.Sign() <= 0 {
		p.invalid(size, storage.String(), "must be greater than zero")
	}
	class := func(name string, value *string) {
		if value != nil && *value != "" {
			p.invalidFor(path.Child(name), *value, validation.NameIsDNSSubdomain(*value, false))
		}
	}
	class("storageClassName", spec.StorageClassName)
	optionalOneOf(p, path.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock,
		corev1.PersistentVolumeFilesystem)
	class("volumeAttributesClassName", spec.VolumeAttributesClassName)
}
