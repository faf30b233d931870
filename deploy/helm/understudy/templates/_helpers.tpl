{{- define "understudy.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "understudy.selector" -}}
app.kubernetes.io/name: understudy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "understudy.labels" -}}
{{ include "understudy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The scheme of HTTP: without tls.required it has no TLS. */}}
{{- define "understudy.scheme" -}}
{{- if and .Values.tls.secret .Values.tls.required -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{/* Secrets of the node, by the folder that it finds them in. */}}
{{- define "understudy.secrets" -}}
{{- with .Values.tls.secret }}
tls: {{ . | quote }}
{{- end }}
{{- with .Values.roles.tokensSecret }}
tokens: {{ . | quote }}
{{- end }}
{{- with .Values.etcd.tls.secret }}
etcd: {{ . | quote }}
{{- end }}
{{- with .Values.etcd.passwordSecret }}
etcd-password: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "understudy.settings" -}}
{{- if not .Values.etcd.endpoints -}}
{{- fail "etcd.endpoints is empty: give host:port of each member" -}}
{{- end -}}
{{- $scheme := ternary "https://" "" .Values.etcd.tls.enabled -}}
etcd_endpoints: {{ printf "%s%s" $scheme (join (printf ";%s" $scheme) .Values.etcd.endpoints) | quote }}
{{- if .Values.etcd.tls.secret }}
etcd-ca: /etc/understudy-etcd/ca.crt
{{- if .Values.etcd.tls.certificate }}
etcd-cert: /etc/understudy-etcd/tls.crt
etcd-key: /etc/understudy-etcd/tls.key
{{- end }}
{{- end }}
{{- if .Values.etcd.user }}
etcd-user: {{ .Values.etcd.user | quote }}
etcd-password-file: /etc/understudy-etcd-password/password
{{- end }}
{{- if .Values.tls.secret }}
tls-cert: /etc/understudy-tls/tls.crt
tls-key: /etc/understudy-tls/tls.key
{{- if .Values.tls.clientCertificates }}
tls-ca: /etc/understudy-tls/ca.crt
{{- end }}
tls-required: {{ .Values.tls.required }}
{{- end }}
{{- if .Values.roles.enabled }}
roles: true
{{- if .Values.roles.tokensSecret }}
roles-tokens: /etc/understudy-tokens/tokens
{{- end }}
{{- end }}
cluster_id: {{ .Values.clusterID | quote }}
journal-compact: {{ ternary "on" "auto" .Values.etcd.compact | quote }}
rpc_port: {{ .Values.ports.rpc }}
metrics_port: {{ .Values.ports.http }}
data-dir: /var/lib/understudy
log-format: json
{{- with .Values.settings }}
{{ toYaml . }}
{{- end }}
{{- end -}}
