// The types of Grafana that docs/dashboards/evenkeel.json uses: a dashboard whose panels are rows, time series and stats
// with queries of Prometheus. grafana.schema.json is generated from this file:
//
//	npm install @grafana/grafana-foundation-sdk@0.0.21 ts-json-schema-generator@2.4.0
//	echo '{"compilerOptions":{"module":"esnext","moduleResolution":"bundler","strict":true},"files":["grafana.ts"]}' >tsconfig.json
//	npx ts-json-schema-generator --tsconfig tsconfig.json --path grafana.ts --type GrafanaDashboard --expose none --jsDoc none --minify --out grafana.schema.json
//
// grafana-foundation-sdk is published by Grafana Labs under the Apache License 2.0, which applies to grafana.schema.json.
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';
import * as stat from '@grafana/grafana-foundation-sdk/stat';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

type Query = Omit<prometheus.Dataquery, '_implementsDataqueryVariant'>;

interface Fields<Custom> extends Omit<dashboard.FieldConfigSource, 'defaults'> {
  defaults: Omit<dashboard.FieldConfig, 'custom'> & { custom?: Custom };
}

interface PanelOf<Type, Options, Custom> extends Omit<dashboard.Panel, 'type' | 'targets' | 'options' | 'fieldConfig'> {
  type: Type;
  targets: Query[];
  options: Options;
  fieldConfig: Fields<Custom>;
}

type Panel =
  | PanelOf<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | PanelOf<'stat', stat.Options, never>
  | (Omit<dashboard.RowPanel, 'type' | 'panels'> & { type: 'row'; panels: [] });

export type GrafanaDashboard = Omit<dashboard.Dashboard, 'panels'> & { panels: Panel[] };
