// Package builtin has built-in kinds of the API server for tests, with the defaults and the validation of Kubernetes
// 1.36.
//
// An object that is created and read back equals that of a real server without optional admission plugins: no service
// account is set, and no token is mounted. Messages, reasons and fields of errors are those of the real server. Values
// that the real server shows as its internal types have that form.
//
// Not validated:
//   - in Pods and templates: the sources of volumes other than emptyDir, hostPath, gitRepo, secret, configMap, nfs,
//     persistentVolumeClaim, downwardAPI, projected, csi, ephemeral and image; resources of the whole Pod; resource
//     claims of the Pod; names of sysctls; what a Pod of another operating system must not have; annotations for
//     AppArmor, seccomp and tolerations
//   - data sources of claims
//   - in the status of Pods: users and allocated resources of containers, statuses of resource claims
//   - changes of the node affinity of a Pod with scheduling gates: they are rejected
//   - changes of ephemeral containers and resources of static Pods
//   - the specification of a CertificateSigningRequest, and the form of its certificate
//   - whether a priority class and a runtime class exist, and what only the admission of a real server rejects:
//     overhead without a runtime class, a priority without a class
//
// Events are not deleted after an hour.
//
// The class of service (status.qosClass) of a new Pod is computed even if the request has one.
//
// Fields that a later version than 1.36 added are stored, not dropped.
package builtin
