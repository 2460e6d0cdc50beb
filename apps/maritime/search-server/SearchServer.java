import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.index.mapper.MapperExtrasPlugin;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/**
 * Runs one OpenSearch node until the process gets a signal to end.
 *
 * <p>This class creates the node itself, because the main class of OpenSearch refuses to run as root and requires the
 * folders of an unpacked distribution.
 *
 * <p>Arguments: the folder of the node, the folder of its configuration, and settings as {@code name=value}.
 */
public final class SearchServer extends Node {
    private static final String NAME = "dagwright";

    private static final List<Class<? extends Plugin>> MODULES = List.of(
            Netty4Plugin.class,
            MapperExtrasPlugin.class,
            CommonAnalysisPlugin.class,
            PainlessPlugin.class,
            ReindexPlugin.class);

    private SearchServer(Environment environment, Collection<Class<? extends Plugin>> modules) {
        super(environment, modules, true);
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]).toAbsolutePath();
        Path configuration = Path.of(arguments[1]).toAbsolutePath();
        Settings base = Settings.builder().put("path.home", home.toString()).build();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(
                base, parseSettings(Arrays.asList(arguments).subList(2, arguments.length)), configuration, () -> NAME);
        // The node name must be set before logging is configured, because the log pattern contains it.
        LogConfigurator.setNodeName(NAME);
        LogConfigurator.registerErrorListener();
        LogConfigurator.configure(environment);
        SearchServer server = new SearchServer(environment, new ArrayList<>(MODULES));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> closeQuietly(server)));
        server.start();
        Thread.currentThread().join();
    }

    private static Map<String, String> parseSettings(List<String> settings) {
        Map<String, String> values = new HashMap<>();
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            values.put(parts[0], parts[1]);
        }
        return values;
    }

    private static void closeQuietly(SearchServer server) {
        try {
            server.close();
        } catch (Exception failure) {
            System.err.println("the node could not be closed: " + failure);
        }
    }
}
